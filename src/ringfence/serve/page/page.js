"use strict";

const at = (id) => document.getElementById(id);
const state = (name) => { document.documentElement.dataset.state = name; };
let models = [], taken = null, pixels = null, running = null;

const model = () => models[at("model").selectedIndex];
const onScale = (low, high, id) => low * (high / low) ** (at(id).value / 100);
const place = (low, high, value) => Math.round(100 * Math.log(value / low) / Math.log(high / low));
const between = (low, high, value) => Math.min(high, Math.max(low, value));
const takesImages = () => model().shape.length === 3 && [1, 3].includes(model().shape[0]);
const shortest = () => Math.min(0.1, model().most_seconds / 10);
function alpha() {
  const [low, high] = [model().least_alpha, model().most_alpha];
  return between(low, high, Number(onScale(low, high, "alpha").toPrecision(1)));
}
function seconds() {
  const [low, high] = [shortest(), model().most_seconds];
  return between(low, high, Number(onScale(low, high, "seconds").toPrecision(2)));
}
const said = (error) => `${error.argument} ${error.rule}; got ${error.received}. ${error.remedy}`;
const headers = () => (at("token").value ? { Authorization: `Bearer ${at("token").value}` } : {});

function tell(text, bad = false) {
  at("decision").textContent = text;
  at("decision").classList.toggle("bad", bad);
}

/* An answer stands beside its own picture only. */
function forget() {
  if (running) running.abort();
  at("radius").textContent = "-";
  for (const id of ["norm", "evidence", "meaning", "most", "least", "draws"]) at(id).textContent = "";
  at("line").setAttribute("points", "");
  at("counts").tBodies[0].replaceChildren();
  at("save").hidden = true;
}

/* Nothing to ask about. */
function drop() {
  forget();
  taken = pixels = null;
  at("again").disabled = true;
  at("picture").width = at("picture").width;  // which clears it
}

async function load() {
  const reply = await fetch("v1/model", { headers: headers() }).catch(() => null);
  const locked = reply?.status === 401, other = at("token").value !== "";
  at("token-row").hidden = !locked;
  if (!reply?.ok) {
    if (locked) tell(other ? "This is no token of this server." : "This server asks for a token.", other);
    else {
      const error = reply && (await reply.json().catch(() => ({}))).error;
      tell(error ? said(error) : "The server does not answer.", true);
    }
    return state("locked");
  }
  models = (await reply.json()).models;
  at("model").replaceChildren(...models.map((one) => new Option(one.name)));
  chosen();
  state("ready");
}

function chosen() {
  const one = model(), [channels, height, width] = one.shape, file = taken;
  const image = `Images of ${width} x ${height} pixels, ${channels === 1 ? "grey" : "colour"}; others are scaled and cut.`;
  at("takes").textContent = takesImages() ? image : `Arrays (${one.shape.join(", ")}), which this page cannot make.`;
  at("alpha").value = place(one.least_alpha, one.most_alpha, one.usual_alpha);
  at("seconds").value = place(shortest(), one.most_seconds, one.usual_seconds);
  drop();
  tell("Nothing asked yet.");
  moved();
  if (file) take(file);
}

function moved() {
  at("alpha-told").textContent = alpha();
  at("seconds-told").textContent = `${seconds()} s`;
}

/* The image at the model's size, as bytes (C, H, W): what is shown is what is sent. */
async function take(file) {
  const one = model();
  if (!one) return;
  if (!takesImages()) return tell("This model takes no images.", true);
  taken = file;
  const [channels, height, width] = one.shape, image = await createImageBitmap(file).catch(() => null);
  if (taken !== file || model() !== one) return;  // another one was chosen meanwhile
  if (!image) return drop(), tell("This is no image that the browser can read.", true);
  const canvas = at("picture"), pen = canvas.getContext("2d", { willReadFrequently: true });
  [canvas.width, canvas.height] = [width, height];
  pen.fillStyle = "white";  // behind what is transparent, as pages have it: no pixel shows what lies behind the canvas
  pen.fillRect(0, 0, width, height);
  pen.imageSmoothingQuality = "high";
  const scale = Math.max(width / image.width, height / image.height);
  const [w, h] = [image.width * scale, image.height * scale];
  pen.drawImage(image, (width - w) / 2, (height - h) / 2, w, h);
  const shown = pen.getImageData(0, 0, width, height), size = width * height;
  pixels = new Uint8Array(channels * size);
  for (let at = 0; at < size; at++) {
    const [r, g, b] = shown.data.subarray(4 * at, 4 * at + 3);
    if (channels === 3) [r, g, b].forEach((value, plane) => { pixels[plane * size + at] = value; });
    else shown.data.fill(pixels[at] = Math.round(0.299 * r + 0.587 * g + 0.114 * b), 4 * at, 4 * at + 3);
  }
  pen.putImageData(shown, 0, 0);
  at("again").disabled = false;
  await certify();
}

/* An .npy file of bytes. */
function packed() {
  const told = `{'descr': '|u1', 'fortran_order': False, 'shape': (${model().shape.join(", ")},), }`;
  const header = told.padEnd(Math.ceil((told.length + 11) / 64) * 64 - 11) + "\n";
  const bytes = new Uint8Array(10 + header.length + pixels.length);
  bytes.set([0x93, 78, 85, 77, 80, 89, 1, 0, header.length & 255, header.length >> 8]);
  bytes.set(new TextEncoder().encode(header), 10);
  bytes.set(pixels, 10 + header.length);
  return bytes;
}

async function certify() {
  forget();
  const mine = running = new AbortController(), course = [];
  tell("Drawing ...");
  state("drawing");
  const query = new URLSearchParams({ model: model().name, alpha: alpha(), seconds: seconds() });
  try {
    const reply = await fetch(`v1/certify?${query}`, {
      method: "POST", body: packed(), signal: mine.signal,
      headers: { ...headers(), "Content-Type": "application/x-npy", Accept: "text/event-stream" },
    });
    if (!reply.ok) throw (await reply.json()).error;
    for await (const [name, told] of events(reply)) {
      if (name === "error") throw told.error;
      course.push(told);
      show(told, course);
      if (name === "answer") decided(told);
    }
  } catch (error) {
    if (mine.signal.aborted) return;
    forget();
    tell(error.rule ? said(error) : "The server does not answer.", true);
    state("error");
  }
}

async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = "", part; !(part = await reader.read()).done;) {
    const blocks = (text + part.value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const [name, data] = block.split("\n").map((line) => line.slice(line.indexOf(": ") + 2));
      yield [name, JSON.parse(data)];
    }
  }
}

const named = (number) => model().class_names?.[number] ?? `class ${number}`;

/** A number as text, rounded down: what is shown was proved. */
function down(value, places) {
  const nearest = value.toFixed(places);
  return Number(nearest) > value ? (Number(nearest) - 10 ** -places).toFixed(places) : nearest;
}

function show(told, course) {
  at("radius").textContent = down(told.radius, 3);
  at("norm").textContent = `proved radius (${model().norm}; pixels from 0 to 1)`;
  const share = told.prediction === null ? "" : `; p ≥ ${down(told.p_a, 4)} that one gets this class`;
  at("evidence").textContent = `${told.draws.toLocaleString("en")} noisy copies${share}`;
  const most = Math.max(...course.map((one) => one.radius), 0.1), least = course[0].draws;
  const span = Math.max(Math.log(told.draws / least), 1e-9);
  const x = (one) => 36 + 360 * Math.log(one.draws / least) / span, y = (one) => 140 - 128 * one.radius / most;
  at("line").setAttribute("points", course.map((one) => `${x(one).toFixed(1)},${y(one).toFixed(1)}`).join(" "));
  at("most").textContent = down(most, 2);
  at("least").textContent = least.toLocaleString("en");
  at("draws").textContent = `${told.draws.toLocaleString("en")} draws`;
  if (told.prediction !== null) tell(`${named(told.prediction)}, by now`);
}

function decided(answer) {
  const ends = { decided: "It was decided.", draws: "That was with the most copies it draws.", deadline: "The time was over." };
  const sure = answer.alpha > 1e-8 ? Number(down(1 - answer.alpha, 9)) : `1 - ${answer.alpha}`;
  const claimed = `With probability at least ${sure}, no smaller change of its pixels changes this answer.`;
  tell(answer.prediction === null ? "Nothing is claimed: no class was proved." : `It is ${named(answer.prediction)}.`);
  at("meaning").textContent = `${answer.prediction === null ? "" : claimed} ${ends[answer.stopped]}`.trim();
  const votes = answer.stages.slice(1).map((one) => one.cells.votes);
  const sums = votes.length ? votes[0].map((_, k) => votes.reduce((sum, one) => sum + one[k], 0)) : [];
  const total = sums.reduce((a, b) => a + b, 0);
  const rows = sums.map((count, k) => [count, k === model().classes ? "no valid score" : named(k)]);
  rows.sort((a, b) => b[0] - a[0]);
  at("counts").tBodies[0].replaceChildren(...rows.filter(([count]) => count).slice(0, 10).map(([count, name]) => {
    const row = document.createElement("tr"), bar = document.createElement("meter");
    Object.assign(bar, { max: total, value: count });
    bar.setAttribute("aria-label", `${name}: ${count} of ${total}`);
    for (const what of [name, count.toLocaleString("en"), bar]) row.insertCell().append(what);
    return row;
  }));
  const file = new Blob([JSON.stringify(answer, null, 2)], { type: "application/json" });
  URL.revokeObjectURL(at("save").href);
  Object.assign(at("save"), { href: URL.createObjectURL(file), hidden: false });
  state("done");
}

at("model").addEventListener("change", chosen);
at("token").addEventListener("change", load);
for (const id of ["alpha", "seconds"]) at(id).addEventListener("input", moved);
at("file").addEventListener("change", () => at("file").files[0] && take(at("file").files[0]));
at("asked").addEventListener("submit", (event) => { event.preventDefault(); if (pixels) certify(); });
for (const name of ["dragover", "dragleave", "drop"]) {  // anywhere: elsewhere the browser would leave the page for the file
  document.addEventListener(name, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", name === "dragover");
    if (name !== "drop" || !event.dataTransfer.files[0]) return;
    at("file").files = event.dataTransfer.files;
    take(at("file").files[0]);
  });
}
load();
