"use strict";
// Draws the figures of this page from the data that it holds.
(async () => {
  // What speaks against the figures: a line where it is much, and on a phone, where they come first.
  const narrow = matchMedia("(max-width: 40rem)");
  const fold = () => document.querySelectorAll(".doubts").forEach((each) => { each.open = !narrow.matches && !each.matches(".many"); });
  narrow.addEventListener("change", fold);
  fold();
  const HEIGHT_PX = 320, PANEL_PX = 220, LANE_PX = 22, MARGIN_PX = 80, LANE = 0.35, AROUND_S = 0.005;
  const DASHES = { solid: [], dashed: [6, 4], dotted: [2, 3], dashdot: [8, 4, 2, 4] };
  const FEW = 40, PHONE_PX = 480, NAME = 24;
  const LINES = { line: null, steps: "after", quantiles: "before" };
  const NUMBER = "0,0.[000000]";
  const data = await unpacked(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const { Plotting } = Bokeh;
  const model = (name, properties) => new (Bokeh.Models.get(name))(properties);

  // Axes that show the time of the run move together; each figure is a document of its own.
  const times = new Map();
  let moving = false;

  function follow(name, range) {
    times.set(name, range);
    range.change.connect(() => {
      if (moving) return;
      moving = true;
      for (const each of times.values()) each.setv({ start: range.start, end: range.end });
      moving = false;
    });
  }

  // A packet's moment, and what was around it.
  addEventListener("click", ({ target }) => {
    const link = target.closest("a.moment, a.whole"), [shown] = times.values();
    if (!link || !shown) return;
    const sent = Number(link.dataset.sent), lasts = Number(link.dataset.lasts), room = Math.max(AROUND_S, lasts);
    shown.setv(link.matches(".whole") ? time : { start: sent - room, end: sent + lasts + room });
  });

  function bytesOf(base64) {
    return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  }

  function unpacked(text) {
    const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).json();
  }

  function decoded({ type, base64 }) {
    const types = { f8: Float64Array, f4: Float32Array };
    return new types[type](bytesOf(base64).buffer);
  }

  // Paper has no summary to click on.
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function ends(layers, log, ...roles) {
    let low = Infinity, high = -Infinity;
    for (const { columns } of layers) {
      for (const role of roles) {
        for (const value of columns[role] ?? []) {
          if (!Number.isFinite(value) || (log && value <= 0)) continue;
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      }
    }
    return [low, high];
  }

  function range(axis, scale, [low, high]) {
    if (axis.names.length) return { start: -0.6, end: axis.names.length - 0.4 };
    if (!(low <= high)) return { start: scale === "log" ? 1 : 0, end: scale === "log" ? 10 : 1 };
    if (scale === "log") {
      const factor = axis.is_odds ? 1 : Math.max((high / low) ** 0.03, 1.05);
      return { start: low / factor, end: high * factor };
    }
    const room = (high - low || Math.abs(high) || 1) * 0.03;
    return { start: axis.starts_at_zero ? Math.min(0, low) : low - room, end: high + room };
  }

  // A logarithmic axis of differences is linear near zero, which has its place.
  const spread = (linear) => (value) => Math.sign(value) * Math.log10(1 + Math.abs(value) / linear);

  function around(axis, scale, found) {
    const at = scale === "log" ? spread(axis.linear_up_to) : (value) => value;
    const [low, high] = (axis.limits ?? found).map((end) => at(end));
    const { start, end } = range(axis, "linear", [Math.min(low, 0), Math.max(high, 0)]);
    const within = (value) => Math.min(Math.max(at(value), start), end);
    return { at, within, start, end, names: scale === "log" ? axis.ticks : null };
  }

  // The library's own ticks of a logarithmic axis run into each other where it spans few decades.
  function ticksOf({ start, end }) {
    const decades = Math.log10(end / start), low = Math.floor(Math.log10(start));
    if (!(decades > 0.7)) {
      const step = 10 ** Math.floor(Math.log10((end - start) / 2)), first = Math.ceil(start / step);
      return Array.from({ length: Math.floor(end / step) - first + 1 }, (_, at) => (first + at) * step);
    }
    const within = decades < 2.5 ? [1, 2, 5] : [1], stride = Math.ceil(decades / 8);
    return Array.from({ length: Math.ceil(decades) + 1 }, (_, at) => low + at)
      .filter((power) => power % stride === 0)
      .flatMap((power) => within.map((mantissa) => mantissa * 10 ** power))
      .filter((tick) => tick >= start && tick <= end);
  }

  // A duration in the unit that suits it, or the largest of all; ticks need four digits.
  const UNITS = [[1e6, "s"], [1e3, "ms"], [1, "µs"], [0, "ns"]];
  function duration(us, largest = us) {
    const [size, unit] = UNITS.find(([size]) => Math.abs(largest) >= size);
    return us === 0 ? "0" : `${Number((us / (size || 1e-3)).toPrecision(4)).toLocaleString("en")} ${unit}`;
  }

  function durations(scale) {
    const made = model("BasicTickFormatter", {});
    made.doFormat = (ticks) => {
      const largest = Math.max(...ticks.map(Math.abs));
      return ticks.map((tick) => duration(tick, scale === "log" ? tick : largest));
    };
    return made;
  }

  function logarithmic(shown) {
    const ticker = model("FixedTicker", { ticks: ticksOf(shown) });
    shown.change.connect(() => { ticker.ticks = ticksOf(shown); });
    return ticker;
  }

  function dress(drawn, grid, axis, scale, shown, names) {
    const ink = css("--ink");
    Object.assign(drawn, {
      axis_label: axis.quantity, axis_label_text_color: ink, axis_label_text_font_style: "normal",
      major_label_text_color: ink, axis_line_color: ink, major_tick_line_color: ink,
      minor_tick_line_color: null, major_label_policy: model("NoOverlap", {}),
    });
    if (names) {
      drawn.ticker = grid.ticker = model("FixedTicker", { ticks: [...names.keys()] });
      drawn.major_label_overrides = names;
    } else {
      // Those of differences are places on their logarithmic axis.
      const own = axis.linear_up_to === null ? axis.ticks : [];
      if (own.length) drawn.ticker = grid.ticker = model("FixedTicker", { ticks: own });
      else if (scale === "log") drawn.ticker = grid.ticker = logarithmic(shown);
      drawn.formatter = axis.is_duration
        ? durations(scale) : model("NumeralTickFormatter", { format: NUMBER });
    }
  }

  function draw(figure, box, scales) {
    const { x, y, layers } = figure;
    const lanes = y.names.length, height = box.closest(".panels") ? PANEL_PX : HEIGHT_PX;
    const limits = (axis, scale, ...roles) =>
      range(axis, scale, axis.limits ?? ends(layers, scale === "log", ...roles));
    const zero = y.linear_up_to === null
      ? null : around(y, scales.y, ends(layers, false, "y", "low", "high"));
    const x_range = model("Range1d", x.is_time ? time : limits(x, scales.x, "x", "x_end"));
    if (x.is_time) follow(figure.name, x_range);
    const plot = Plotting.figure({
      height: lanes ? lanes * LANE_PX + MARGIN_PX : height, sizing_mode: "stretch_width",
      x_axis_type: scales.x, y_axis_type: zero ? "linear" : scales.y, x_range,
      y_range: model("Range1d", zero
        ? { start: zero.start, end: zero.end } : limits(y, scales.y, "y", "y_end", "low", "high")),
      tools: ["pan", "box_zoom", "wheel_zoom", "reset", "save"], toolbar_location: "above",
      background_fill_color: null, border_fill_color: null, outline_line_color: null,
      min_border_right: 16,
    });
    plot.toolbar.logo = null;
    plot.toolbar.autohide = true;
    plot.toolbar.active_drag = coarse ? null : "auto";
    const named = x.is_odds ? new Map(figure.percentiles) : null;
    dress(plot.xaxis, plot.xgrid, x, scales.x, plot.x_range, named);
    const heights = zero?.names?.map((tick) => [zero.at(tick), duration(tick)]);
    // On a phone long names would leave no room to draw in.
    const names = box.clientWidth < PHONE_PX
      ? y.names.map((name) => name.length > NAME ? `${name.slice(0, 9)}…${name.slice(10 - NAME)}` : name) : y.names;
    dress(plot.yaxis, plot.ygrid, y, scales.y, plot.y_range, lanes ? new Map(names.entries()) : heights ? new Map(heights) : null);
    if (zero) {
      plot.add_layout(model("Span", { location: 0, dimension: "width", line_color: css("--ink") }));
    }
    for (const each of [plot.xgrid, plot.ygrid]) each.grid_line_color = css("--grid");
    const drawn = layers.map((layer) => mark(plot, figure, layer, zero));
    Plotting.show(plot, box);
    return drawn;
  }

  function mark(plot, figure, { mark, columns, colour: number, dash, key, label, part }, zero) {
    const tooltips = tips(figure, columns, label, part);
    const source = model("ColumnDataSource", { data: columns });
    const colour = data.colours[number % data.colours.length];
    const field = (name) => ({ field: name });
    const at = () => ({ source, x: field("x"), y: field("y") });
    const found = [];
    let hovered;
    if (mark === "points" || mark === "crosses") {
      const few = columns.x.length <= FEW;
      const look = mark === "crosses"
        ? { marker: "x", size: few ? 9 : 5, line_color: colour, fill_color: null, line_width: few ? 2 : 1 }
        : { marker: "circle", size: few ? 8 : 4, line_color: null, fill_color: colour };
      if (zero) {
        // What is told stays what was found; an end without a bound reaches the edge.
        const drawn = ["y", "low", "high"].map((role) => [`${role}_at`, columns[role].map(zero.within)]);
        source.data = { ...columns, ...Object.fromEntries(drawn) };
      }
      const height = (role) => field(zero ? `${role}_at` : role);
      hovered = plot.scatter({ ...at(), y: height("y"), ...look });
      if (columns.low) {
        found.push(plot.segment({
          source, x0: field("x"), x1: field("x"), y0: height("low"), y1: height("high"),
          line_color: colour, line_width: few ? 2 : 1,
        }));
      }
    } else if (mark === "cells") {
      const values = columns.value;
      const high = values.reduce((a, b) => Math.max(a, b), 2);
      const palette = dark.matches ? data.cells : [...data.cells].reverse();
      const color_mapper = model("LogColorMapper", { palette, low: 1, high });
      hovered = plot.quad({
        left: field("x"), right: field("x_end"), bottom: field("y"), top: field("y_end"), source,
        fill_color: { field: "value", transform: color_mapper }, line_color: null,
      });
    } else if (mark === "spans" || mark === "bars") {
      source.data = new Map([
        ...Object.entries(columns),
        ["left", mark === "spans" ? columns.x : columns.x.map(() => 0)],
        ["right", mark === "spans" ? columns.x_end : columns.x],
        ["bottom", columns.y.map((y) => y - LANE)],
        ["top", columns.y.map((y) => y + LANE)],
      ]);
      hovered = plot.quad({
        left: field("left"), right: field("right"), bottom: field("bottom"), top: field("top"),
        source, fill_color: colour, line_color: colour, line_width: 0.7,
      });
    } else {
      const look = { line_color: colour, line_width: 1.6, line_dash: DASHES[dash] };
      const mode = LINES[mark];
      found.push(mode === null
        ? plot.line({ ...at(), ...look }) : plot.step({ ...at(), ...look, mode }));
      if (columns.low) found.push(shade(plot, columns, colour, mode));
      // Lines are hit where they were measured.
      hovered = plot.scatter({ ...at(), size: 9, fill_alpha: 0, line_alpha: 0 });
    }
    found.push(hovered);
    plot.add_tools(model("HoverTool", { renderers: [hovered], tooltips }));
    return { key, found };
  }

  function shade(plot, columns, colour, mode) {
    // An end that the samples do not bound has no shade.
    const there = [...columns.x.keys()].filter((at) => !Number.isNaN(columns.low[at] + columns.high[at]));
    const pick = (column) => there.map((at) => column[at]);
    const source = model("ColumnDataSource", {
      data: { x: pick(columns.x), low: pick(columns.low), high: pick(columns.high) },
    });
    const look = {
      x: { field: "x" }, y1: { field: "low" }, y2: { field: "high" }, source,
      fill_color: colour, fill_alpha: 0.2,
    };
    return mode === null ? plot.varea(look) : plot.varea_step({ ...look, step_mode: mode });
  }

  const end = (value) => Number.isFinite(value)
    ? value.toLocaleString("en", { maximumFractionDigits: 6 }) : "unbounded";

  function tips({ x, y, value }, columns, label, part) {
    const number = (role) => `@${role}{${NUMBER}}`;
    const found = [];
    if (!x.names.length) found.push([x.label, number("x")]);
    if (columns.x_end) found.push(["until", number("x_end")]);
    if (!y.names.length) found.push([y.label, number("y")]);
    if (columns.y_end) found.push(["up to", number("y_end")]);
    if (columns.low) {
      columns.interval = [...columns.low.keys()].map((at) => `${end(columns.low[at])} to ${end(columns.high[at])}`);
      found.push(["95 % interval", "@interval"]);
    }
    if (columns.value) found.push([value, number("value")]);
    // Texts of others go in as values: in a template they would be looked at for placeholders.
    for (const text of new Set([label, part].filter(Boolean))) {
      columns[`text${found.length}`] = Array(columns.x.length).fill(text);
      found.push(["", `@text${found.length}`]);
    }
    return found;
  }

  function button(text, pressed, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.append(...[text].flat());
    made.setAttribute("aria-pressed", String(pressed));
    made.addEventListener("click", () => {
      const now = made.getAttribute("aria-pressed") !== "true";
      made.setAttribute("aria-pressed", String(now));
      act(now);
    });
    return made;
  }

  function legend(figure, drawn) {
    const found = new Map();
    for (const { key, found: renderers } of drawn) {
      if (figure.legend.includes(key)) found.set(key, [...(found.get(key) ?? []), ...renderers]);
    }
    return [...found].map(([key, renderers]) => {
      const layer = figure.layers.find((each) => each.key === key);
      const patch = document.createElement("span");
      patch.className = "patch";
      patch.style.background = data.colours[layer.colour % data.colours.length];
      return button([patch, key], true, (shown) => renderers.forEach((each) => { each.visible = shown; }));
    });
  }

  function show(figure, place) {
    const box = place.querySelector(".plot"), keys = place.querySelector(".keys");
    const scales = { x: figure.x.scale, y: figure.y.scale };
    const again = () => {
      box.replaceChildren();
      const drawn = draw(figure, box, scales);
      const axes = ["x", "y"].filter((name) => figure[name].can_be_log).map((name) =>
        button(`log ${name}`, scales[name] === "log", (log) => {
          scales[name] = log ? "log" : "linear";
          again();
        }));
      keys.replaceChildren(...legend(figure, drawn), ...axes);
      place.dataset.drawn = "true";
    };
    again();
    return again;
  }

  const overTime = data.figures.filter((figure) => figure.x.is_time);
  const timed = overTime.flatMap((figure) => figure.layers);
  const before = overTime.filter((figure) => !figure.x.starts_at_zero).flatMap((figure) => figure.layers);
  const redraws = [];
  const left = data.figures.map((figure) => {
    for (const layer of figure.layers) {
      for (const [role, column] of Object.entries(layer.columns)) layer.columns[role] = decoded(column);
    }
    return figure;
  });

  const lasts = ends(timed, false, "x", "x_end")[1];
  const time = range({ names: [], starts_at_zero: true }, "linear", [Math.min(0, ends(before, false, "x")[0]), lasts]);

  // One after the other, so that the page can be read meanwhile.
  function next() {
    document.documentElement.dataset.drawn = dark.matches ? "dark" : "light";
    const figure = left.shift();
    if (!figure) return;
    redraws.push(show(figure, document.getElementById(`figure-${figure.name}`)));
    setTimeout(next, 0);
  }

  dark.addEventListener("change", () => {
    document.documentElement.dataset.drawn = dark.matches ? "dark" : "light";
    redraws.forEach((again) => again());
  });
  next();
})();
