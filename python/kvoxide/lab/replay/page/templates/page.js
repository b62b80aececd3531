"use strict";
(() => {
  const { plots, dark } = JSON.parse(document.getElementById("data").textContent);
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 800px)");
  const hidden = new Map();
  let isPrinting = false;

  const isDark = () => prefersDark.matches && !isPrinting;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function coloured(value) {
    if (typeof value === "string") return (isDark() && dark[value]) || value;
    if (Array.isArray(value)) return value.map(coloured);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item)]));
  }

  function themedAxis(axis) {
    const line = css("--line");
    const size = narrow.matches ? 11 : 12;
    return {
      gridcolor: css("--grid"), linecolor: line, tickcolor: line,
      ...axis,
      tickfont: { size }, title: { ...axis.title, font: { size } },
    };
  }

  function themedLayout(layout) {
    const themed = {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: css("font-family") || "sans-serif", color: css("--ink"), size: 12 },
      hoverlabel: {
        bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") }, namelength: -1,
      },
    };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis/.test(key)) themed[key] = themedAxis(layout[key]);
    }
    return themed;
  }

  function shown(trace, off) {
    return off.has(trace.legendgroup) ? { ...trace, visible: false } : trace;
  }

  function draw(box) {
    const number = Number(box.dataset.plot);
    const off = hidden.get(number) ?? hidden.set(number, new Set()).get(number);
    const plot = coloured(plots[number]);
    const config = {
      responsive: true, displaylogo: false, displayModeBar: narrow.matches ? false : "hover",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    };
    drawLegend(box, plot.data, off);
    Plotly.react(box, plot.data.map((trace) => shown(trace, off)), themedLayout(plot.layout), config);
  }

  function drawLegend(box, data, off) {
    const entries = new Map();
    for (const trace of data) {
      if (trace.showlegend !== false && !entries.has(trace.legendgroup)) entries.set(trace.legendgroup, trace);
    }
    const legend = box.parentElement.querySelector(".legend");
    legend.replaceChildren(...[...entries].map(([group, trace]) => legendEntry(box, group, trace, off)));
  }

  function legendEntry(box, group, trace, off) {
    const button = document.createElement("button");
    const swatch = document.createElement("i");
    const isFilled = trace.type === "bar" || trace.stackgroup !== undefined;
    const colour = trace.fillcolor ?? trace.line?.color ?? trace.marker?.color;
    if (isFilled) {
      swatch.style.background = colour;
    } else {
      const styles = { dot: "dotted", dash: "dashed", dashdot: "dashed" };
      swatch.className = "stroke";
      swatch.style.borderTopColor = colour;
      swatch.style.borderTopStyle = styles[trace.line?.dash] ?? "solid";
    }
    button.type = "button";
    button.setAttribute("aria-pressed", String(!off.has(group)));
    button.append(swatch, group);
    button.addEventListener("click", () => {
      if (!off.delete(group)) off.add(group);
      draw(box);
    });
    return button;
  }

  // A plot in a closed group has no size; it is drawn when the group is opened.
  const isVisible = (box) => box.closest("details:not([open])") === null;

  function drawAll() {
    for (const box of document.querySelectorAll(".drawing")) {
      if (isVisible(box)) draw(box);
    }
  }

  for (const group of document.querySelectorAll("details")) {
    group.addEventListener("toggle", () => {
      if (group.open) group.querySelectorAll(".drawing").forEach(draw);
    });
  }
  prefersDark.addEventListener("change", drawAll);
  narrow.addEventListener("change", drawAll);
  addEventListener("beforeprint", () => { isPrinting = true; drawAll(); });
  addEventListener("afterprint", () => { isPrinting = false; drawAll(); });
  drawAll();
})();
