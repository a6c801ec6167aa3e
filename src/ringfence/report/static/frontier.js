// @ts-check
"use strict";
/* The slider of the ACES frontier: marks one theta in the chart and shows its numbers. */
{
  /** @type {Record<string, any>[]} */
  const rows = JSON.parse(document.getElementById("frontier-data")?.textContent || "[]");
  const slider = /** @type {HTMLInputElement | null} */ (document.getElementById("theta"));
  if (slider && rows.length) {
    const thetas = [...new Set(rows.map((row) => row.theta))].sort((a, b) => a - b);
    const names = Object.keys(rows[0]).filter((name) => name !== "theta");
    const table = /** @type {HTMLTableElement} */ (document.getElementById("theta-table"));
    const shown = (/** @type {string} */ name, /** @type {any} */ value) =>
      value === null || value === undefined ? "-" : typeof value === "string" ? value : name === "acr" ? value.toFixed(4) : `${(100 * value).toFixed(1)}%`;
    const line = (/** @type {string} */ kind, /** @type {string[]} */ cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map((text, place) => {
        const cell = document.createElement(place && kind === "td" ? "td" : "th");
        cell.textContent = text;
        if (cell.tagName === "TH") cell.setAttribute("scope", kind === "th" ? "col" : "row");
        return cell;
      }));
      return row;
    };
    table.tHead?.replaceChildren(line("th", names));

    const show = () => {
      const theta = thetas[Number(slider.value)];
      const output = document.getElementById("theta-value");
      if (output) output.textContent = String(theta);
      slider.setAttribute("aria-valuetext", `theta ${theta}`);
      const own = rows.filter((row) => row.theta === theta);
      table.tBodies[0].replaceChildren(...own.map((row) => line("td", names.map((name) => shown(name, row[name])))));
      ringfence.fitTables();
      ringfence.charts["frontier-0"]?.view.signal("theta", theta).runAsync();
    };
    slider.addEventListener("input", show);
    ringfence.whenThemed.push(show);
    show();
  }
}
