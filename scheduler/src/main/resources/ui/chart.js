// Charts of the last minutes: areas that are stacked, and a line for what is granted.
import { html, useEffect, useLayoutEffect, useReducer, useRef } from './standalone.module.js';

/** Loaded by the first chart: the other views do without. */
let library = null;

/** A color of the page in the scheme of now, as a canvas takes it. */
function colorOf(place, name) {
  place.style.color = `var(${name})`;
  return getComputedStyle(place).color;
}

export const seriesColor = (at) => `var(--series-${at % 8})`;

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const clockSeconds = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });

/** Seconds that one point of a chart stands for: fewer points than pixels, and less noise. */
const BUCKET = 5;

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** One figure for each bucket, counted from the end; a gap where a bucket has none. */
function buckets(values, step) {
  const size = Math.max(1, Math.round(BUCKET / step));
  const means = [];
  for (let end = values.length; end > 0; end -= size) {
    const known = values.slice(Math.max(0, end - size), end).filter((value) => value !== null);
    means.unshift(known.length === 0 ? null : mean(known));
  }
  return means;
}

const sum = (one, other) => (one === null && other === null ? null : (one ?? 0) + (other ?? 0));

/** The memory of a container in a history: what the shim has charged, and what NVML shows beyond that. */
export const memoryOf = ({ chargedMiB, unattributedMiB }) =>
  chargedMiB.map((value, at) => sum(value, unattributedMiB[at]));

/** GPU time of a container in a history: what it used of its own cores, what it borrowed, and what it lent. */
export function timeOf({ utilizationPercent, borrowedPercent, lentPercent }, label, color) {
  const own = utilizationPercent.map((value, at) => value && Math.max(0, value - (borrowedPercent[at] ?? 0)));
  const more = [
    { label: `${label}, borrowed`, values: borrowedPercent, color, fill: 0.9 },
    { label: `${label}, lent`, values: lentPercent, color, fill: 0.15 },
  ].filter(({ values }) => values.some((value) => value > 0));
  return more.length === 0
    ? [{ label, values: own, color }]
    : [{ label: `${label}, own cores`, values: own, color, fill: 0.5 }, ...more];
}

/** Sums of equally long lists, place by place. */
export const total = ([first = [], ...others]) =>
  first.map((value, at) => others.reduce((all, other) => sum(all, other[at]), value));

/** Sums from the first series up; a gap where a series has no figure. */
function stacked(series) {
  let below = null;
  return series.map((values) => {
    const sums = values.map((value, at) => (value === null ? null : value + (below?.[at] ?? 0)));
    below = sums.map((sum, at) => sum ?? below?.[at] ?? null);
    return sums;
  });
}

function options(series, limit, top, increments, print, place) {
  const grid = { stroke: colorOf(place, '--line'), width: 1 };
  const axis = { stroke: colorOf(place, '--quiet'), grid, ticks: grid, font: '11px system-ui, sans-serif' };
  const areas = series.map(({ color, fill = 1 / 3 }, at) => {
    const stroke = colorOf(place, `--series-${(color ?? at) % 8}`); // rgb(1, 2, 3)
    const faint = stroke.replace('rgb', 'rgba').replace(')', `, ${fill})`);
    return { stroke, fill: faint, width: 1.5, points: { show: false } };
  });
  return {
    width: place.clientWidth,
    height: 200,
    padding: [10, 8, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: () => [0, top] } },
    axes: [
      { ...axis, values: (_, at) => at.map((second) => (second % 60 ? clockSeconds : clock).format(second * 1000)) },
      { ...axis, size: 78, incrs: increments, values: (_, at) => at.map(print) },
    ],
    series: [
      {},
      ...areas,
      ...(limit ? [{ stroke: colorOf(place, '--text'), width: 1.5, dash: [6, 4], points: { show: false } }] : []),
    ],
    bands: series.slice(1).map((_, at) => ({ series: [at + 2, at + 1], fill: areas[at + 1].fill })),
  };
}

/** Of an axis in MiB, and in percent. */
export const MIB_INCREMENTS = Array.from({ length: 20 }, (_, power) => 16 * 2 ** power);
export const PERCENT_INCREMENTS = [5, 10, 20, 25, 50, 100, 200, 400];

const latest = (values) => values.findLast((value) => value !== null);

/**
 * @param series label and values, of equal length, bottom first; perhaps a color's number and how faint its area is
 * @param limit label and values of a line, or null
 * @param most what the axis shows at least
 * @param increments the distances between lines of the axis to choose from
 * @param print a figure with its unit
 */
export function Chart({ title, series, limit, end, step, most, increments, print }) {
  const place = useRef();
  const plot = useRef();
  const [version, redraw] = useReducer((known) => known + 1, 0);
  const length = series[0]?.values.length ?? 0;
  useEffect(() => {
    if (!library) import('./uPlot.esm.js').then((module) => ((library = module.default), redraw()));
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    scheme.addEventListener('change', redraw);
    const watcher = new ResizeObserver(([entry]) => {
      plot.current?.setSize({ width: Math.floor(entry.contentRect.width), height: 200 });
    });
    watcher.observe(place.current);
    return () => {
      scheme.removeEventListener('change', redraw);
      watcher.disconnect();
    };
  }, []);
  const shape = `${series.map((one) => one.label).join()} ${limit?.label} ${most} ${version}`;
  useLayoutEffect(() => {
    if (!library || length === 0) return;
    const last = Date.parse(end) / 1000;
    const areas = stacked(series.map(({ values }) => buckets(values, step)));
    const points = areas[0].length;
    const times = Array.from({ length: points }, (_, at) => last - (points - 1 - at) * BUCKET);
    const data = [times, ...areas, ...(limit ? [buckets(limit.values, step)] : [])];
    const top =
      Math.max(most, ...data.slice(1).map((values) => values.reduce((max, value) => Math.max(max, value ?? 0), 0))) *
      1.05;
    if (plot.current?.shape !== shape || plot.current.top !== top) {
      plot.current?.destroy();
      plot.current = new library(
        options(series, limit, top, increments, print, place.current),
        data,
        place.current,
      );
      Object.assign(plot.current, { shape, top });
    } else {
      plot.current.setData(data);
    }
  });
  useEffect(() => () => plot.current?.destroy(), []);

  const figures = series.map(({ label, values, color, fill = 1 }, at) => ({
    label,
    swatch: { background: seriesColor(color ?? at), opacity: fill },
    now: latest(values),
    peak: values.reduce((max, value) => (value === null ? max : Math.max(max ?? 0, value)), null),
  }));
  const words = figures
    .map(({ label, now, peak }) =>
      peak === null ? `${label}: no figures` : `${label}: ${print(now)} now, ${print(peak)} at most`,
    )
    .join('; ');
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <div ref=${place} class="plot" role="img" aria-label=${`${title}. ${words || 'No figures yet.'}`}></div>
    ${length === 0 && html`<p class="quiet">No figures yet.</p>`}
    <ul class="legend">
      ${figures.map(
        ({ label, swatch, now, peak }) => html`<li key=${label}>
          <span class="swatch" style=${swatch}></span>${label}${' '}
          <span class="quiet">${peak === null ? 'no figures' : `${print(now)} now, ${print(peak)} at most`}</span>
        </li>`,
      )}
      ${
        limit &&
        html`<li>
          <span class="swatch dashed"></span>${limit.label}${' '}
          <span class="quiet">${print(latest(limit.values) ?? 0)}</span>
        </li>`
      }
    </ul>
  </figure>`;
}
