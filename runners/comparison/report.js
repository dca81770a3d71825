"use strict";
(async () => {
  const root = document.documentElement;
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const touched = matchMedia("(pointer: coarse)").matches;
  let axis = "time";

  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  // Charts name colours by the properties of the style sheet.
  const painted = (value) =>
    JSON.parse(JSON.stringify(value), (key, inner) =>
      /color$/.test(key) && typeof inner === "string" ? colour(inner) : inner);

  const unpacked = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const script = document.createElement("script");
  script.textContent = await unpacked(document.getElementById("plotly").textContent);
  document.head.append(script);

  const narrow = () => root.clientWidth < 600;
  const framed = (given) => ({
    gridcolor: "--rule", linecolor: "--rule", zeroline: false, automargin: true, ...given,
  });
  const horizontal = (chart) => framed(chart.by[axis] && axis === "step"
    ? { ...chart.layout.xaxis, title: { text: "optimizer step" } }
    : chart.layout.xaxis);
  const vertical = (chart) => framed(chart.layout.yaxis.ticktext && narrow()
    ? { ...chart.layout.yaxis, ticktext: chart.narrow }
    : chart.layout.yaxis);
  // On a phone each name of a legend has a line of its own.
  const height = (chart) =>
    chart.layout.height + (chart.layout.legend && narrow() ? 19 * chart.traces.length : 0);
  const layout = (chart) => painted({
    margin: { l: 8, r: 16, t: 36, b: 48 }, // the buttons are above
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: "--ink" },
    paper_bgcolor: "--paper",
    plot_bgcolor: "--paper",
    modebar: { color: "--muted", activecolor: "--ink", bgcolor: "--paper" },
    hoverlabel: { bgcolor: "--raised", bordercolor: "--rule", font: { color: "--ink" } },
    dragmode: touched ? false : "zoom", // a finger scrolls the page
    ...chart.layout,
    height: height(chart),
    xaxis: horizontal(chart),
    yaxis: vertical(chart),
  });
  const traces = (chart) => painted(chart.traces.map((trace, index) =>
    chart.by[axis] ? { ...trace, x: chart.by[axis][index] } : trace));
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: touched ? true : "hover",
    modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  };
  const draw = () => Promise.all(charts.map((chart) =>
    Plotly.react(document.getElementById(chart.id), traces(chart), layout(chart), config)));

  for (const button of document.querySelectorAll("[data-by]")) {
    button.addEventListener("click", () => {
      axis = button.dataset.by;
      for (const other of document.querySelectorAll("[data-by]")) {
        other.setAttribute("aria-pressed", String(other.dataset.by === axis));
      }
      draw();
    });
  }
  const themes = ["auto", "light", "dark"];
  const switched = document.getElementById("theme");
  switched.addEventListener("click", () => {
    const label = switched.querySelector("span");
    label.textContent = themes[(themes.indexOf(label.textContent) + 1) % themes.length];
    root.style.colorScheme = label.textContent === "auto" ? "" : label.textContent;
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  await draw();
  root.dataset.drawn = charts.length;
})();
