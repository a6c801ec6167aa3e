// @ts-check
"use strict";
/* The summary table: sorted by its headings, copied as text. */
{
  /** @typedef {{sound: boolean, cells: [string, number | string | null][]}} Row */
  /** @type {{columns: {name: string, title: string, paper: boolean}[], rows: Row[]}} */
  const data = JSON.parse(document.getElementById("table-data")?.textContent || "null");
  const table = /** @type {HTMLTableElement} */ (document.getElementById("table"));
  const body = table.tBodies[0];
  const lines = [...body.rows];
  let order = data.rows.map((_, place) => place);

  /** @param {number} column @param {boolean} down */
  function sort(column, down) {
    const value = (/** @type {number} */ place) => data.rows[place].cells[column][1];
    order = data.rows.map((_, place) => place).sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === null || y === null) return (x === null ? 1 : 0) - (y === null ? 1 : 0);
      const sign = typeof x === "string" ? x.localeCompare(String(y)) : x - Number(y);
      return (down ? -sign : sign) || a - b;
    });
    body.append(...order.map((place) => lines[place]));
    [...table.tHead?.rows[0].cells || []].forEach((cell, place) =>
      cell.setAttribute("aria-sort", place !== column ? "none" : down ? "descending" : "ascending"));
  }

  table.tHead?.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    if (!button) return;
    const column = Number(button.dataset.column);
    const now = button.closest("th")?.getAttribute("aria-sort");
    // Numbers are mostly read from the largest down, names from the first up.
    sort(column, now === "none" ? typeof data.rows[0].cells[column][1] !== "string" : now === "ascending");
  });

  /** @type {Record<string, (text: string) => string>} */
  const escapes = {
    csv: (text) => {
      // No spreadsheet may take a name for a formula.
      const plain = /^[=+\-@\t\r]./s.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
      return /[",\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
    },
    latex: (text) => text.replace(/[\\&%$#_{}~^]/g, (c) => (c === "\\" ? "\\textbackslash{}" : c === "~" || c === "^" ? `\\${c}{}` : `\\${c}`)),
    markdown: (text) => text.replaceAll("\\", "\\\\").replaceAll("|", "\\|").replaceAll("<", "&lt;"),
  };

  /** @param {string} form @returns {string} the table in the order shown; unsound rows say so in every form */
  function asText(form) {
    const names = data.columns.map((column) => column.name);
    const rows = order.map((place) => data.rows[place]).map((row) =>
      row.cells.map(([shown, value], k) => {
        const text = form === "csv" && typeof value === "number" ? String(value) : shown.replaceAll(",", form === "csv" ? "," : "\u202f");
        return k === 0 && !row.sound ? `${text} (no proven guarantee)` : text;
      }));
    const [head, ...rest] = [names, ...rows].map((cells) => cells.map(escapes[form]));
    if (form === "csv") return [head, ...rest].map((cells) => cells.join(",")).join("\n") + "\n";
    if (form === "markdown") {
      const rule = head.map((_, k) => (k ? "---:" : "---"));
      return [head, rule, ...rest].map((cells) => `| ${cells.join(" | ")} |`).join("\n") + "\n";
    }
    return asLatex(rest);
  }

  /** The columns of a paper: certified accuracies stand in percent under one heading, with their radii below it.
   * @param {string[][]} rows escaped cells @returns {string} */
  function asLatex(rows) {
    const all = data.columns.map((column, place) => ({ ...column, place })).filter((column) => column.paper);
    const [plain, radii] = [all.filter((one) => !one.name.startsWith("at ")), all.filter((one) => one.name.startsWith("at "))];
    /** @type {Record<string, string>} */
    const words = { run: "", sigma: "$\\sigma$", natural: "Natural (\\%)" };
    const top = plain.map((one) => words[one.name] ?? one.name);
    if (radii.length) top.push(`\\multicolumn{${radii.length}}{c}{Certified accuracy (\\%) at radius}`);
    const below = [...plain.map(() => ""), ...radii.map((one) => one.name.slice(3))];
    const rule = radii.length ? [`\\cmidrule(lr){${plain.length + 1}-${all.length}}`] : [];
    const cell = (/** @type {string} */ text) => text.replace(/^([\d.]+)\\%$/, "$1").replace(/^-$/, "--");
    const line = (/** @type {string[]} */ cells) => `${cells.join(" & ")} \\\\`;
    const body = rows.map((row) => line([...plain, ...radii].map((one) => cell(row[one.place]))));
    const head = radii.length ? [line(top), ...rule, line(below)] : [line(top)];
    const kinds = `l${"r".repeat(all.length - 1)}`;
    return [`\\begin{tabular}{${kinds}}`, "\\toprule", ...head, "\\midrule", ...body, "\\bottomrule", "\\end{tabular}", ""].join("\n");
  }

  /** @param {string} text @returns {Promise<boolean>} */
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  Object.assign(window, { ringfenceTable: asText });
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const form = /** @type {HTMLElement} */ (button).dataset.copy || "csv";
      const done = await copy(asText(form));
      const note = document.getElementById("copied");
      if (note) note.textContent = done ? `Copied as ${form}.` : "The browser did not allow copying.";
    });
  }
}
