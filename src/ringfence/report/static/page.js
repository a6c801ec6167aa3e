// @ts-check
"use strict";
/* Theme and charts. Names of the page live in one object, so that the scripts share nothing else. */

/** @typedef {{view: {signal: (name: string, value: unknown) => {runAsync: () => Promise<unknown>}, data: (name: string) => object[], finalize: () => void}, finalize: () => void}} Drawn */

/** @type {{charts: Record<string, Drawn>, draw: (element: HTMLElement, spec: object) => Promise<Drawn>, fitTables: () => void, ready: Promise<unknown>, dark: () => boolean, whenThemed: Array<() => void>}} */
const ringfence = { charts: {}, draw, fitTables, ready: Promise.resolve(), dark: isDark, whenThemed: [] };
Object.assign(window, { ringfence });

/** @param {string} id @returns {any} what a JSON block of the page holds */
function embedded(id) {
  return JSON.parse(document.getElementById(id)?.textContent || "null");
}

/** @returns {boolean} */
function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

/** @param {boolean} dark */
function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const button = /** @type {HTMLButtonElement} */ (document.getElementById("theme"));
  button.textContent = dark ? "Switch to light" : "Switch to dark";
}

/** @param {number} width @returns {object} Vega's colours for the theme in use, and a legend that fits */
function chartConfig(width) {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim();
  const soft = style.getPropertyValue("--soft").trim();
  const line = style.getPropertyValue("--line").trim();
  return {
    background: "transparent",
    font: getComputedStyle(document.body).fontFamily,
    axis: { labelColor: soft, titleColor: ink, gridColor: line, domainColor: soft, tickColor: soft, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 },
    legend: { labelColor: ink, titleColor: ink, labelFontSize: 12, columns: width < 420 ? 1 : width < 640 ? 2 : 3 },
    view: { stroke: null },
  };
}

/** Draw a chart. `ast` makes Vega interpret expressions, so that the page can forbid evaluating code.
 * @param {HTMLElement} element @param {object} spec @returns {Promise<Drawn>} */
async function draw(element, spec) {
  const actions = { export: true, source: false, compiled: false, editor: false };
  // @ts-ignore: vegaEmbed comes from the script before this one
  const made = await vegaEmbed(element, spec, { actions, downloadFileName: element.dataset.file || "figure", ast: true, renderer: "svg", config: chartConfig(element.clientWidth), tooltip: { theme: isDark() ? "dark" : "light" } });
  element.querySelector("summary")?.setAttribute("aria-label", "Save this figure");
  return made;
}

/** Draw every chart of the page anew, in the colours of the theme. */
async function drawAll() {
  const specs = embedded("figures");
  for (const place of document.querySelectorAll("[data-figure]")) {
    const element = /** @type {HTMLElement} */ (place);
    const name = element.dataset.figure || "";
    ringfence.charts[name]?.finalize();
    ringfence.charts[name] = await draw(element, specs[name]);
  }
}

/** A table too wide for its place is set smaller; if that is not enough, each row becomes a block of named values:
 * nothing is cut off, nothing scrolls. */
function fitTables() {
  for (const place of document.querySelectorAll(".fit")) {
    const table = /** @type {HTMLTableElement} */ (place.querySelector("table"));
    const names = [...table.tHead?.rows[0]?.cells || []].map((cell) => cell.textContent?.trim() || "");
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, k) => { cell.dataset.name = names[k]; });
    place.classList.remove("tight", "stacked");
    for (const shape of ["tight", "stacked"]) place.classList.toggle(shape, table.offsetWidth > place.clientWidth);
  }
}
addEventListener("resize", fitTables);

{
  const system = matchMedia("(prefers-color-scheme: dark)");
  setTheme(system.matches);
  const redraw = () => { fitTables(); ringfence.ready = drawAll().then(() => ringfence.whenThemed.forEach((then) => then())); };
  document.getElementById("theme")?.addEventListener("click", () => { setTheme(!isDark()); redraw(); });
  system.addEventListener("change", () => { setTheme(system.matches); redraw(); });
  redraw();
}
