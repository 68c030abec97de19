// Draws the figures again, so that they can be pointed at, and filters them with everything else that belongs to a run.
(() => {
  "use strict";
  const { figures, runs } = JSON.parse(document.getElementById("report-data").textContent);
  const form = document.getElementById("filters");
  const root = document.documentElement;
  let turn = 0;

  // A run in sight brings its baseline along, or there would be nothing to compare it with.
  const inSight = () => {
    const asked = [...form.querySelectorAll("select")].filter((one) => one.value !== "");
    const found = new Set();
    for (const [run, facts] of Object.entries(runs)) {
      if (asked.every((one) => facts[one.name] === one.value)) {
        found.add(run);
        if (facts.baseline) found.add(facts.baseline);
      }
    }
    return found;
  };

  const drawOne = async (figure, seen, mine) => {
    const spec = structuredClone(figures[figure.dataset.figure]);
    const chart = figure.querySelector(".chart");
    const rows = spec.data.values.filter((row) => row.run === undefined || seen.has(row.run));
    // What belongs to a panel, and to no run of its own, goes with the last run of that panel.
    const panels = new Set(rows.filter((row) => row.run !== undefined).map((row) => row.panel));
    spec.data.values = rows.filter((row) => row.run !== undefined || row.panel === undefined || panels.has(row.panel));
    const aside = document.createElement("div");
    if (spec.data.values.length === 0) {
      aside.textContent = "No run in sight has a line here.";
    } else {
      // `ast`: expressions are interpreted, since the page's policy lets no text become a script.
      await vegaEmbed(aside, spec, {
        actions: false, ast: true, defaultStyle: false, renderer: "svg", tooltip: { disableDefaultStyle: true },
      });
    }
    if (mine === turn) {
      chart.replaceChildren(aside);
      chart.dataset.drawn = String(mine);
    }
  };

  const show = async () => {
    const mine = ++turn;
    const seen = inSight();
    for (const one of document.querySelectorAll("[data-run]")) {
      one.classList.toggle("away", !seen.has(one.dataset.run));
    }
    const all = Object.keys(runs).length;
    document.getElementById("shown").textContent = `${[...seen].length} of ${all} runs shown`;
    for (const figure of document.querySelectorAll("[data-figure]")) {
      if (mine !== turn) return;
      await drawOne(figure, seen, mine);
    }
    root.dataset.ready = String(mine);
  };

  const isDark = () =>
    (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
  });
  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
  form.hidden = false;
  show();
})();
