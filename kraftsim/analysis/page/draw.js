// The pictures: the timeline with its swimlanes, the rates below it, and the overview of the whole run.
const GUTTER = 136, TOP = 30, RIGHT = 10, DENSE_FROM = 5000, LABELS_TO = 170, ARROWHEADS_TO = 900, SLOT = 3;
const colours = {};
const canvases = { timeline: document.getElementById("timeline"), rates: document.getElementById("rates"), overview: document.getElementById("overview") };
const picture = { x: null, y: [], places: [], laneHeight: 0, width: 0, mode: "events" };

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "ink", "quiet", "line", "lane", "life", "life-edge", "accent", "bad", "warn", "fault", "fault-soft", "ring", ...familyNames]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

function prepare(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px ui-sans-serif, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
  pen.textBaseline = "middle";
  return [pen, width, height];
}

function sizeLanes() {
  const room = Math.max(300, window.innerHeight - 430);
  const height = Math.max(30, Math.min(62, room / Math.max(1, facts.lanes.length)));
  canvases.timeline.style.height = `${Math.round(TOP + height * facts.lanes.length + 6)}px`;
}

function drawTimeline() {
  const [pen, width, height] = prepare(canvases.timeline);
  const laneHeight = (height - TOP - 6) / Math.max(1, facts.lanes.length);
  const scale = (width - GUTTER - RIGHT) / (view.to - view.from);
  picture.x = (t) => GUTTER + (t - view.from) * scale;
  picture.t = (x) => view.from + (x - GUTTER) / scale;
  Object.assign(picture, { laneHeight, width, height });
  const middle = (lane) => TOP + laneHeight * (lane + 0.5);
  picture.middle = middle;
  drawLanes(pen, width, laneHeight, middle);
  drawAxis(pen, width, height);
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, 0, width - GUTTER - RIGHT + 4, height);
  pen.clip();
  drawLives(pen, laneHeight);
  drawBands(pen, width, laneHeight);
  drawPhases(pen, height);
  const first = firstFrom(view.from), end = firstFrom(view.to + 1);
  picture.mode = end - first > DENSE_FROM ? "density" : "events";
  picture.places = [];
  if (picture.mode === "density") drawDensity(pen, first, end, laneHeight);
  else drawEvents(pen, first, end, laneHeight, middle);
  drawWitnesses(pen, height, middle);
  pen.restore();
  return end - first;
}

function drawLanes(pen, width, laneHeight, middle) {
  facts.lanes.forEach((lane, number) => {
    if (number % 2 === 0) {
      pen.fillStyle = colours.lane;
      pen.fillRect(0, TOP + laneHeight * number, width, laneHeight);
    }
    if (number && facts.lanes[number - 1].role !== lane.role) {
      pen.fillStyle = colours.line;
      pen.fillRect(0, TOP + laneHeight * number, width, 1);
    }
    pen.fillStyle = colours.ink;
    pen.fillText(clipped(pen, lane.name, GUTTER - 22), 12, middle(number));
  });
}

function clipped(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > room) end--;
  return `${text.slice(0, end)}…`;
}

function drawAxis(pen, width, height) {
  const span = view.to - view.from;
  const rough = span / Math.max(2, (width - GUTTER) / 120);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= rough);
  pen.textAlign = "center";
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = picture.x(t);
    pen.fillStyle = colours.line;
    pen.fillRect(Math.round(x), TOP - 6, 1, height - TOP + 6);
    pen.fillStyle = colours.quiet;
    if (x > GUTTER + 20 && x < width - 30) pen.fillText(seconds(Math.abs(t) < step / 1e6 ? 0 : t, step * 10), x, 13);
  }
  pen.textAlign = "left";
}

function drawLives(pen, laneHeight) {
  for (const life of facts.incarnations) {
    if (["final", "harness"].includes(facts.lanes[life.lane].role)) continue;
    const from = Math.max(GUTTER - 20, picture.x(life.begin_ns)), to = Math.min(picture.width + 20, picture.x(life.end_ns));
    if (to < GUTTER || from > picture.width) continue;
    const top = TOP + laneHeight * life.lane + 3, height = laneHeight - 6;
    pen.fillStyle = colours.life;
    pen.beginPath();
    pen.roundRect(from, top, Math.max(2, to - from), height, 4);
    pen.fill();
    if (life.incarnation > 1 && to - from > 40) {
      pen.fillStyle = colours.quiet;
      pen.font = "10.5px ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif";
      pen.fillText(`#${life.incarnation}`, Math.max(from, GUTTER) + 5, top + 8);
    }
    if (life.end === "lasting") continue;
    pen.fillStyle = life.end === "stopped" ? colours["life-edge"] : colours.fault;
    pen.fillRect(to - 1, top, 2, height);
  }
}

function drawBands(pen, width, laneHeight) {
  for (const band of facts.bands) {
    const from = picture.x(band.begin_ns), to = picture.x(band.end_ns);
    if (to < GUTTER || from > width) continue;
    const lanes = band.lanes.length ? band.lanes : facts.lanes.map((_, number) => number);
    for (const lane of lanes) {
      const y = TOP + laneHeight * lane + 1;
      pen.fillStyle = colours["fault-soft"];
      pen.fillRect(from, y, Math.max(to - from, 1), laneHeight - 2);
      pen.fillStyle = colours.fault;
      pen.fillRect(from, y, 1.5, laneHeight - 2);
      if (band.lanes.length && laneHeight > 26 && to - from > 40) {
        pen.font = "11px ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif";
        pen.fillText(clipped(pen, band.fault, Math.min(to, width) - Math.max(from, GUTTER) - 6), Math.max(from, GUTTER) + 5, y + 7);
        pen.font = "12px ui-sans-serif, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
      }
    }
  }
}

function drawPhases(pen, height) {
  pen.setLineDash([2, 4]);
  for (const phase of facts.phases) {
    const x = picture.x(phase.t_ns);
    pen.strokeStyle = colours.quiet;
    pen.beginPath();
    pen.moveTo(x, TOP - 6);
    pen.lineTo(x, height);
    pen.stroke();
    pen.fillStyle = colours.quiet;
    pen.fillText(phase.phase, x + 5, TOP + 8);
  }
  pen.setLineDash([]);
}

function placeOf(i, middle) {
  return picture.places.find((place) => place.i === i) ?? { x: picture.x(data.t[i]), y: middle(data.lane[i]) };
}

function drawWitnesses(pen, height, middle) {
  const events = view.breach ? view.breach.events : [];
  for (const i of events) {
    const { x, y } = placeOf(i, middle);
    pen.strokeStyle = colours.ring;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(x, TOP);
    pen.lineTo(x, height);
    pen.stroke();
    pen.setLineDash([]);
    ring(pen, x, y, colours.ring);
    if (picture.mode === "density" || picture.places.length >= LABELS_TO) tag(pen, labelOf(i), x, y, colours.ring);
  }
  if (view.kept >= 0 && !events.includes(view.kept)) {
    const { x, y } = placeOf(view.kept, middle);
    ring(pen, x, y, colours.accent);
  }
}

function tag(pen, text, x, y, colour) {
  const width = pen.measureText(text).width + 12, left = x + 14 + width > picture.width ? x - 14 - width : x + 14;
  pen.fillStyle = colours.ground;
  pen.strokeStyle = colour;
  pen.beginPath();
  pen.roundRect(left, y - 10, width, 20, 5);
  pen.fill();
  pen.stroke();
  pen.fillStyle = colours.ink;
  pen.fillText(text, left + 6, y);
}

function ring(pen, x, y, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.arc(x, y, 8, 0, 7);
  pen.stroke();
  pen.lineWidth = 1;
}
