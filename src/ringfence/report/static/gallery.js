// @ts-check
"use strict";
/* The inputs: unpacked once, filtered and sorted as columns, drawn one page at a time. */

/** @typedef {[number, number, number, number[], number, number, Record<string, number[]>]} Stream */
/** @typedef {{name: string, run: string, lane: string, sigma: number | null, sound: boolean, procedure: string, prediction: (number | null)[], radii: Record<string, Column>, facts: Record<string, (number | null)[]>, spent: Record<string, number>, streams: Stream[][]} & Record<string, any>} Lane */
/** @typedef {(number | null)[] | number | null} Column one value per item, or the value all items share */
/** @typedef {{urls: string[], columns: number, perSheet: number, width: number, height: number, sizes: [number, number][], frames: number[], lossy: boolean}} Pictures */
/** @typedef {{sets: {name: string, classes: string[]}[], items: {set: number[], id: number[], label: (number | null)[], name: string[], picture: (number | null)[]}, pictures: Pictures | null, lanes: Lane[], palette: string[]}} Gallery */

(async () => {
  const packed = document.getElementById("gallery-data")?.textContent || "";
  const bytes = Uint8Array.from(atob(packed.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  /** @type {Gallery} */
  const data = JSON.parse(await new Response(stream).text());
  const { items, lanes, sets } = data;
  const byId = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
  const [list, dialog] = [byId("gallery"), byId("detail")];

  /** @param {Column} column @param {number} item @returns {number | null} */
  const at = (column, item) => (Array.isArray(column) ? column[item] : column);
  const has = (/** @type {Lane} */ lane, /** @type {number} */ item) => lane.prediction[item] !== null;
  const className = (/** @type {number} */ item, /** @type {number} */ c) => (c === -1 ? "abstained" : sets[items.set[item]].classes[c] ?? `class ${c}`);
  /** A number as text, rounded down, or up for upper bounds: nothing shown claims more than was proved.
   * @param {number | null | undefined} value @param {number} [places] @param {boolean} [up] */
  const digits = (value, places = 4, up = false) => {
    if (value === null || value === undefined) return "-";
    if (Math.abs(value) >= 1e300) return "\u221e";
    if (Number.isInteger(value)) return value.toLocaleString("en");
    const nearest = Number(value.toFixed(places)), unit = 10 ** -places;
    return (up ? (nearest < value ? nearest + unit : nearest) : nearest > value ? nearest - unit : nearest).toFixed(places);
  };
  const outcome = (/** @type {Lane} */ lane, /** @type {number} */ item) => {
    const answer = lane.prediction[item];
    return answer === null ? "missing" : answer === -1 ? "abstained" : items.label[item] === null ? "answered" : answer === items.label[item] ? "right" : "wrong";
  };
  /** The radius earned: what a wrong or withheld answer claims is worth nothing in a comparison. */
  const earned = (/** @type {Lane} */ lane, /** @type {number} */ item) => (outcome(lane, item) === "wrong" || outcome(lane, item) === "abstained" ? 0 : at(lane.radius, item) ?? 0);
  const share = (/** @type {Lane} */ lane, /** @type {number} */ item) => {
    const last = lane.streams[item].at(-1);
    return last && last[3].length ? last[3][1] / last[2] : 1;
  };

  // What is chosen ------------------------------------------------------------------------------------------

  const state = { lane: 0, other: -1, outcome: "all", class: "", sort: "id", search: "", page: 0, size: 24 };
  /** @type {number[]} */
  let shown = [];

  function choose() {
    const lane = lanes[state.lane], other = lanes[state.other];
    const all = items.id.map((_, item) => item).filter((item) => has(lane, item));
    const radii = all.filter((item) => outcome(lane, item) === "right").map((item) => earned(lane, item)).sort((a, b) => a - b);
    const small = radii[Math.floor(radii.length / 4)] ?? 0;
    const gain = (/** @type {number} */ item) => (other && has(other, item) ? earned(lane, item) - earned(other, item) : -Infinity);
    /** @type {Record<string, (item: number) => boolean>} */
    const kinds = {
      all: () => true,
      small: (item) => outcome(lane, item) === "right" && earned(lane, item) <= small,
      gain: (item) => gain(item) > 1e-9,
      loss: (item) => Number.isFinite(gain(item)) && gain(item) < -1e-9,
    };
    const kind = kinds[state.outcome] || ((/** @type {number} */ item) => outcome(lane, item) === state.outcome);
    const words = state.search.trim().toLowerCase();
    const found = (/** @type {number} */ item) => !words || String(items.id[item]) === words || items.name[item].toLowerCase().includes(words);
    const ofClass = (/** @type {number} */ item) => state.class === "" || items.label[item] === Number(state.class);
    shown = all.filter((item) => kind(item) && ofClass(item) && found(item));
    const lowest = (/** @type {number} */ item) => (Number.isFinite(gain(item)) ? gain(item) : Infinity);
    /** @type {Record<string, (item: number) => number>} the smaller, the earlier */
    const keys = {
      "radius-down": (item) => -(at(lane.radius, item) ?? 0),
      "radius-up": (item) => at(lane.radius, item) ?? 0,
      "gain-down": (item) => -gain(item),
      "gain-up": lowest,
      "draws-down": (item) => -(at(lane.draws, item) ?? 0),
      "seconds-down": (item) => -(at(lane.seconds, item) ?? 0),
      "share-up": (item) => share(lane, item),
    };
    const key = keys[state.sort];
    if (key) {
      const values = new Map(shown.map((item) => [item, key(item)]));
      shown.sort((a, b) => /** @type {number} */ (values.get(a)) - /** @type {number} */ (values.get(b)) || a - b);
    }
    state.page = 0;
    render();
  }

  // Pictures ------------------------------------------------------------------------------------------------

  const sheets = (data.pictures?.urls || []).map((url) => {
    const image = new Image();
    image.src = url;
    return image.decode().then(() => image);
  });

  /** Gaussian noise from a small generator seeded by the item, so that an input's noisy copy is always the same one.
   * @param {number} seed @returns {() => number} */
  function gaussian(seed) {
    let word = (seed * 2654435761 + 12345) >>> 0;
    const uniform = () => {
      word = (word + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(word ^ (word >>> 15), word | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return (((mixed ^ (mixed >>> 14)) >>> 0) + 1) / 4294967297;
    };
    return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
  }

  /** @param {number} item @param {Lane} lane @returns {HTMLElement | null} the picture and its noisy copy */
  function pair(item, lane) {
    const picture = items.picture[item], pictures = data.pictures;
    if (picture === null || !pictures) return null;
    const [height, width] = pictures.sizes[picture] || [pictures.height, pictures.width];
    const frames = pictures.frames[picture] || 1;
    const box = document.createElement("span");
    // Runs store a clip as frames side by side; such a picture, like any wide one, is shown above its noisy copy.
    box.className = frames > 1 || width >= 2 * height ? "pair strip" : "pair";
    const canvases = [0, 1].map((noisy) => {
      const canvas = document.createElement("canvas");
      Object.assign(canvas, { width, height });
      canvas.setAttribute("role", "img");
      const what = frames > 1 ? `${frames} frames of` : "";
      canvas.setAttribute("aria-label", noisy ? `illustration: ${what} the input with noise of sigma ${lane.sigma}` : `${what} input ${items.id[item]}`);
      return canvas;
    });
    if (lane.sigma === null) canvases.pop();
    box.append(...canvases);
    sheets[Math.floor(picture / pictures.perSheet)].then((sheet) => {
      const place = picture % pictures.perSheet;
      const left = (place % pictures.columns) * pictures.width, top = Math.floor(place / pictures.columns) * pictures.height;
      canvases.forEach((canvas, noisy) => {
        const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
        context.drawImage(sheet, left, top, width, height, 0, 0, width, height);
        if (!noisy) return;
        const pixels = context.getImageData(0, 0, width, height), values = pixels.data, noise = gaussian(items.id[item] + 1);
        const grey = isGrey(values);
        for (let k = 0; k < values.length; k += 4) {
          const shift = noise() * 255 * (lane.sigma ?? 0);
          for (let c = 0; c < 3; c++) values[k + c] += grey || !c ? shift : noise() * 255 * (lane.sigma ?? 0);
        }
        context.putImageData(pixels, 0, 0);
      });
    });
    return box;
  }

  /** @param {Uint8ClampedArray} values @returns {boolean} */
  function isGrey(values) {
    for (let k = 0; k < values.length; k += 4) if (values[k] !== values[k + 1] || values[k] !== values[k + 2]) return false;
    return true;
  }

  // Cards ---------------------------------------------------------------------------------------------------

  /** @param {string} kind @param {string} text @param {string} [style] @returns {HTMLElement} */
  function element(kind, text, style) {
    const made = document.createElement(kind);
    made.textContent = text;
    if (style) made.className = style;
    return made;
  }

  /** @param {number} item @param {Lane} lane @param {number} most @returns {HTMLElement | null} */
  function bars(item, lane, most) {
    const last = lane.streams[item].at(-1);
    if (!last || !last[3].length) return null;
    const box = element("span", "", "bars");
    for (let k = 0; k < Math.min(last[3].length, 2 * most); k += 2) {
      const [c, weight] = [last[3][k], last[3][k + 1]];
      const meter = document.createElement("meter");
      meter.max = last[2];
      meter.value = weight;
      meter.setAttribute("aria-label", `${className(item, c)}: ${digits(weight, 1)} of ${last[2]} draws`);
      box.append(element("span", className(item, c)), meter, element("span", digits(weight, 1)));
    }
    return box;
  }

  /** @param {number} item @returns {HTMLElement} */
  function card(item) {
    const lane = lanes[state.lane], other = lanes[state.other];
    const button = /** @type {HTMLButtonElement} */ (element("button", "", "card"));
    button.type = "button";
    button.dataset.item = String(item);
    const label = items.label[item];
    const head = element("span", "", "line");
    head.append(element("strong", `#${items.id[item]}`), element("span", label === null ? "no label" : `label ${className(item, label)}`));
    const result = outcome(lane, item);
    const verdict = element("span", "", "line");
    verdict.append(element("span", result === "abstained" ? result : `${result}: ${className(item, lane.prediction[item] ?? -1)}`, result), element("span", `r ${digits(at(lane.radius, item), 3)}`, "number"));
    button.append(...[pair(item, lane), head, verdict].filter((part) => part !== null));
    if (other && other !== lane && has(other, item)) {
      const line = element("span", "", "line");
      const gain = earned(lane, item) - earned(other, item);
      line.append(element("span", `other r ${digits(at(other.radius, item), 3)}`), element("span", `${gain >= 0 ? "+" : "\u2212"}${Math.abs(gain).toFixed(3)}`, "number"));
      button.append(line);
    }
    const counted = bars(item, lane, 3);
    if (counted) button.append(counted);
    if (items.name[item]) button.append(element("span", items.name[item], "name"));
    button.addEventListener("click", () => open(item));
    const entry = document.createElement("li");
    entry.append(button);
    return entry;
  }

  function render() {
    const pages = Math.max(1, Math.ceil(shown.length / state.size));
    state.page = Math.min(Math.max(0, state.page), pages - 1);
    const now = shown.slice(state.page * state.size, (state.page + 1) * state.size);
    list.replaceChildren(...(now.length ? now.map(card) : [element("li", "No input fits.", "empty")]));
    byId("position").textContent = `${shown.length.toLocaleString("en")} inputs, page ${state.page + 1} of ${pages}`;
    byId("previous").disabled = state.page === 0;
    byId("next").disabled = state.page >= pages - 1;
  }

  // One input -----------------------------------------------------------------------------------------------

  /** @param {string} field @param {string} title @param {object[]} values @returns {object} bars of one input, for Vega-Lite */
  const barChart = (field, title, values) => ({
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    description: `${title} of this input`,
    data: { values }, width: "container", height: 22 * values.length, autosize: { type: "fit-x", contains: "padding" },
    mark: { type: "bar", color: data.palette[0], tooltip: true },
    encoding: { y: { field: "name", type: "nominal", sort: null, title: null, axis: { labelLimit: 140 } }, x: { field, type: "quantitative", title: null, axis: { tickCount: 6 } } },
  });

  /** @param {number} item */
  function open(item) {
    const lane = lanes[state.lane], label = items.label[item];
    const bar = element("div", "", "bar");
    const steps = [["Previous", -1], ["Next", 1]].map(([text, step]) => {
      const next = shown[shown.indexOf(item) + Number(step)];
      const button = /** @type {HTMLButtonElement} */ (element("button", String(text)));
      button.disabled = next === undefined;
      button.addEventListener("click", () => open(next));
      return button;
    });
    const close = element("button", "Close");
    close.addEventListener("click", () => dialog.close());
    bar.append(...steps, close);
    const title = element("h3", `Input ${items.id[item]}${items.name[item] ? `, ${items.name[item]}` : ""}`);
    title.id = "detail-title";
    const about = element("p", `Data ${sets[items.set[item]].name}; label ${label === null ? "unknown" : className(item, label)}.`);
    const picture = pair(item, lane);
    const drawn = element("p", picture && lane.sigma !== null ? `The second picture is an illustration: the first with noise of sigma ${lane.sigma}, drawn by this page.` : "", "hint");
    const figures = element("div", "", "figures");
    const region = element("div", "", "fit");
    region.append(recorded(item));
    dialog.replaceChildren(...[bar, title, about, picture, drawn, figures, region].filter((part) => part !== null));
    if (!dialog.open) dialog.showModal();
    ringfence.fitTables();
    const last = lane.streams[item].at(-1);
    /** @type {[string, string, object[]][]} */
    const charts = [];
    if (last?.[3].length) {
      const votes = last[3].filter((_, k) => k % 2 === 0).map((c, k) => ({ name: className(item, c), votes: last[3][2 * k + 1] }));
      const rest = last[2] - last[4] - votes.reduce((sum, one) => sum + one.votes, 0);
      if (rest > 0.5 && !last[5]) votes.push({ name: "other classes", votes: rest });
      if (last[4]) votes.push({ name: "invalid scores", votes: last[4] });
      charts.push(["votes", last[5] ? "sum of scores" : `votes of ${last[2].toLocaleString("en")} draws`, votes]);
    }
    const radii = Object.entries(lane.radii).map(([name, column]) => ({ name, radius: at(column, item) })).filter((one) => one.radius !== null && one.radius < 1e300);
    if (radii.length > 1) charts.push(["radius", "radius by mechanism", radii]);
    for (const [field, text, values] of charts) {
      const figure = document.createElement("figure"), place = element("div", "", "chart");
      place.dataset.file = `${lane.name}-input-${items.id[item]}-${field}`.replace(/[^A-Za-z0-9._]+/g, "-");
      figure.append(element("h4", text), place);
      figures.append(figure);
      ringfence.draw(place, barChart(field, text, values));
    }
  }

  /** @param {number} item @returns {HTMLTableElement} all that every lane recorded about the input */
  function recorded(item) {
    const own = lanes.filter((lane) => has(lane, item));
    const table = document.createElement("table");
    const row = (/** @type {string} */ name, /** @type {string[]} */ cells, kind = "td") => {
      const line = document.createElement("tr");
      const head = element("th", name);
      head.setAttribute("scope", "row");
      line.append(head, ...cells.map((text) => element(kind, text)));
      return line;
    };
    const head = table.createTHead(), body = table.createTBody();
    head.append(row("", own.map((lane) => lane.name), "th"));
    head.querySelectorAll("th").forEach((cell) => cell.setAttribute("scope", "col"));
    head.querySelector("th")?.replaceChildren("recorded");
    const add = (/** @type {string} */ name, /** @type {(lane: Lane) => string} */ of) => {
      const cells = own.map(of);
      if (cells.some((text) => text !== "-" && text !== "")) body.append(row(name, cells));
    };
    add("answer", (lane) => className(item, lane.prediction[item] ?? -1));
    add("outcome", (lane) => outcome(lane, item));
    for (const name of ["radius", "target", "p_a", "p_b"]) add(name, (lane) => digits(at(lane[name], item), 6, name === "p_b"));
    for (const name of new Set(own.flatMap((lane) => Object.keys(lane.radii)))) add(`radius, ${name}`, (lane) => digits(at(lane.radii[name] ?? null, item), 6));
    for (const name of new Set(own.flatMap((lane) => Object.keys(lane.facts)))) add(name, (lane) => (lane.facts[name]?.[item] ?? null) === null ? "-" : className(item, Number(lane.facts[name][item])));
    add("procedure", (lane) => lane.procedure);
    add("guarantee", (lane) => (lane.sound ? "sound" : "no proven guarantee"));
    for (const name of ["draws", "forwards", "seconds", "lift_norm", "seed"]) add(name, (lane) => digits(at(lane[name], item), 6));
    add("alpha", (lane) => String(at(lane.alpha, item) ?? "-"));
    add("alpha spent on", (lane) => Object.entries(lane.spent).map(([name, value]) => `${name} ${value}`).join(", ") || "-");
    const stages = Math.max(0, ...own.map((lane) => lane.streams[item].length));
    for (let k = 0; k < stages; k++) {
      add(k === 0 ? "first draws" : `draws ${k + 1}`, (lane) => {
        const stream = lane.streams[item][k];
        if (!stream) return "-";
        const [stage, requests, draws, pairs, invalid, , other] = stream;
        const votes = pairs.filter((_, p) => p % 2 === 0).map((c, p) => `${className(item, c)} ${digits(pairs[2 * p + 1], 1)}`);
        const more = Object.entries(other).map(([name, cells]) => `${name} ${cells.join("/")}`);
        return `stage ${stage}: ${draws.toLocaleString("en")} in ${requests} request${requests === 1 ? "" : "s"}; ${[...votes, ...more].join(", ")}${invalid ? `; ${invalid} invalid` : ""}`;
      });
    }
    return table;
  }

  // Controls ------------------------------------------------------------------------------------------------

  const most = Math.max(-1, ...items.label.map((label) => label ?? -1));
  for (let c = 0; c <= most; c++) {
    const option = /** @type {HTMLOptionElement} */ (element("option", items.set.length ? className(0, c) : String(c)));
    option.value = String(c);
    byId("class").append(option);
  }
  for (const id of ["lane", "other", "outcome", "class", "sort", "search"]) {
    const control = byId(id);
    if (!control) continue;
    const numeric = id === "lane" || id === "other";
    const read = () => Object.assign(state, { [id]: numeric ? Number(control.value) : control.value });
    read();
    control.addEventListener("input", () => { read(); choose(); });
  }
  byId("controls").addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
  byId("size").addEventListener("input", () => { state.size = Number(byId("size").value); render(); });
  byId("previous").addEventListener("click", () => { state.page -= 1; render(); });
  byId("next").addEventListener("click", () => { state.page += 1; render(); });
  choose();
  document.documentElement.dataset.gallery = "ready";
})();
