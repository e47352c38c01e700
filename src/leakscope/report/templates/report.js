"use strict";
(() => {
  const root = document.documentElement;
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);

  // Theme: the system decides until the reader does. Storage may be forbidden on file pages.
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const recall = () => { try { return localStorage.getItem("leakscope-theme"); } catch { return null; } };
  const keep = (value) => { try { localStorage.setItem("leakscope-theme", value); } catch { /* not remembered */ } };
  const show = (theme) => {
    root.dataset.theme = theme;
    button.setAttribute("aria-pressed", String(theme === "dark"));
    button.textContent = theme === "dark" ? "Light" : "Dark";
  };
  show(recall() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", (event) => { if (!recall()) show(event.matches ? "dark" : "light"); });
  button.addEventListener("click", () => {
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    show(next);
    keep(next);
  });

  // Comparison slider: the range input moves the edge of the upper picture.
  each(".compare", (box) => {
    const range = box.querySelector("input");
    const move = () => box.style.setProperty("--at", range.value + "%");
    range.addEventListener("input", move);
    move();
  });

  // Sorting: numbers by data-v, text as read; what has no value stays last either way.
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, column, numeric) => {
    const cell = row.cells[column];
    if (!numeric) return (cell.dataset.v ?? cell.textContent).trim();
    return cell.dataset.v === "" || cell.dataset.v === undefined ? NaN : Number(cell.dataset.v);
  };
  const order = (a, b, numeric, sign) => {
    if (!numeric) return sign * a.localeCompare(b, "en", { numeric: true });
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return a === b ? 0 : sign * (a < b ? -1 : 1);
  };
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const numeric = head.classList.contains("n");
    const now = head.getAttribute("aria-sort");
    // Figures start with the largest: the reader looks for the worst.
    const next = now === "none" ? (numeric ? "descending" : "ascending") : now === "ascending" ? "descending" : "ascending";
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", next);
    const sign = next === "ascending" ? 1 : -1;
    const rows = [...body.rows].map((row) => [value(row, column, numeric), row]);
    rows.sort((a, b) => order(a[0], b[0], numeric, sign));
    body.append(...rows.map((pair) => pair[1]));
  }));

  // Filter: every word must occur somewhere in the line.
  const shown = document.getElementById("shown");
  document.getElementById("filter").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      count += !row.hidden;
    }
    shown.textContent = count === 1 ? "1 line" : count + " lines";
  });

  // On paper nothing can be opened: matrices, rules of grading and failures are printed in full.
  const folded = [...document.querySelectorAll("details.rules, details.failed, details.more")].filter((part) => !part.open);
  addEventListener("beforeprint", () => folded.forEach((part) => { part.open = true; }));
  addEventListener("afterprint", () => folded.forEach((part) => { part.open = false; }));

  // The numbers behind the page, saved without a server.
  const save = document.getElementById("download");
  if (save) save.addEventListener("click", () => {
    const text = document.getElementById("leakscope-data").textContent;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "leakscope-summary.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
})();
