"use strict";
(() => {
  // The theme: as the system has it, light, or dark; remembered where the browser allows.
  const THEMES = ["auto", "light", "dark"];
  const root = document.documentElement;
  const recall = () => { try { return localStorage.getItem("felb-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("felb-theme", theme); } catch { /* private window */ } };
  const wear = (theme) => { if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme; };
  let theme = THEMES.includes(recall()) ? recall() : "auto";
  wear(theme);

  const themes = (button) => {
    const tell = () => {
      button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[theme];
      button.setAttribute("aria-label", `Theme: ${theme}. Change`);
    };
    button.hidden = false;
    tell();
    button.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      wear(theme); remember(theme); tell();
    });
  };

  const sorting = (table) => {
    const body = table.tBodies[0];
    const headings = [...table.tHead.rows[0].cells];
    const key = (row, column) => {
      const cell = row.cells[column];
      return "order" in cell.dataset ? cell.dataset.order : cell.textContent.trim();
    };
    headings.forEach((heading, column) => {
      const kind = heading.dataset.sort;
      if (!kind) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const first = kind === "number" ? "descending" : "ascending";
        const other = kind === "number" ? "ascending" : "descending";
        const way = heading.getAttribute("aria-sort") === first ? other : first;
        headings.forEach((one) => one.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", way);
        const sign = way === "ascending" ? 1 : -1;
        const rows = [...body.rows].map((row) => [key(row, column), row]);
        rows.sort(([a], [b]) => {
          if (kind === "words") return sign * a.localeCompare(b, undefined, { numeric: true });
          const [x, y] = [parseFloat(a), parseFloat(b)];
          if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y); // unknown ones last
          return sign * (x - y);
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  };

  const searching = (part) => {
    const box = part.querySelector(".search");
    const input = box.querySelector("input");
    const count = box.querySelector(".count");
    const rows = [...part.querySelector("tbody").rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const filter = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, i) => {
        row.hidden = !words.every((word) => texts[i].includes(word));
        shown += !row.hidden;
      });
      count.textContent = words.length ? `${shown} of ${rows.length} shown` : "";
    };
    box.hidden = false;
    input.addEventListener("input", filter);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { input.value = ""; filter(); }
    });
    filter(); // a browser may have kept what was typed
  };

  const following = (links) => {
    const seen = new Map();
    const mark = () => {
      const current = links.find((link) => seen.get(link.hash.slice(1)));
      links.forEach((link) => (link === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
    };
    const watch = new IntersectionObserver((entries) => {
      entries.forEach((entry) => seen.set(entry.target.id, entry.isIntersecting));
      mark();
    }, { rootMargin: "-20% 0px -60% 0px" });
    document.querySelectorAll("main > section").forEach((section) => watch.observe(section));
  };

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("button.theme").forEach(themes);
    document.querySelectorAll("table.sortable").forEach(sorting);
    document.querySelectorAll(".searchable").forEach(searching);
    following([...document.querySelectorAll(".bar nav a")]);
  });

  // On paper nothing can be opened.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((one) => { one.open = false; }));
})();
