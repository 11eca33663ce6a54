import type { Summary } from "./statistics.ts";

/** One bar of a plot: a name, what was measured, and whether it is ours. */
export interface Bar {
  readonly name: string;
  readonly value: Summary;
  readonly isOurs: boolean;
}

const ROW = 26;
const LEFT = 300;
const WIDTH = 420;
const RIGHT = 70;
const TOP = 44;

/** A line of a plot: what was measured at each size, the smallest first. */
export interface Curve {
  readonly name: string;
  readonly points: readonly (readonly [size: number, value: number])[];
}

const HEIGHT = 240;
const colors = ["#1a7f5a", "#b3541e", "#3b5bdb", "#862e9c", "#5f6b76"];

/** Curves over sizes of any order of magnitude, as an SVG picture. */
export function curvePlot(title: string, unit: string, curves: readonly Curve[]): string {
  const points = curves.flatMap((curve) => curve.points);
  const decades = Math.log10(Math.max(...points.map(([size]) => size)));
  const top = Math.max(...points.map(([, value]) => value)) * 1.1;
  const x = (size: number) => (50 + (Math.log10(size) / decades) * 600).toFixed(1);
  const y = (value: number) => (TOP + HEIGHT - (value / top) * HEIGHT).toFixed(1);
  const ticks = Array.from({ length: Math.floor(decades) + 1 }, (_, power) => 10 ** power);
  const drawn = curves.flatMap(({ name, points }, at) => {
    const color = colors[at % colors.length];
    const line = points.map(([size, value]) => `${x(size)},${y(value)}`).join(" ");
    const [size, value] = points.at(-1) ?? [1, 0];
    return [
      `<polyline points="${line}" fill="none" stroke="${color}" stroke-width="2"/>`,
      ...points.map(
        ([size, value]) =>
          `<circle cx="${x(size)}" cy="${y(value)}" r="3" fill="${color}"/><text x="${x(size)}" y="${Number(y(value)) - 7}" text-anchor="middle" fill="${color}">${value.toFixed(0)}</text>`,
      ),
      `<text x="${Number(x(size)) + 8}" y="${Number(y(value)) + 4}" fill="${color}">${escaped(name)}</text>`,
    ];
  });
  const axis = ticks.map(
    (size) =>
      `<path d="M${x(size)} ${TOP}V${TOP + HEIGHT}" stroke="#ddd"/><text x="${x(size)}" y="${TOP + HEIGHT + 16}" text-anchor="middle">${size.toLocaleString("en")}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="800" height="${TOP + HEIGHT + 26}" font-family="sans-serif" font-size="12">
<title>${escaped(title)}</title>
<rect width="100%" height="100%" fill="#fff"/>
<text x="8" y="18" font-weight="bold">${escaped(title)}</text>
<text x="8" y="34" fill="#555">${escaped(unit)}</text>
${[...axis, ...drawn].join("\n")}
</svg>
`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

/** Horizontal bars, medians with the range of all rounds, as an SVG picture. */
export function barPlot(title: string, unit: string, bars: readonly Bar[]): string {
  const scale = WIDTH / Math.max(...bars.map(({ value }) => value.most));
  const height = TOP + bars.length * ROW + 10;
  const rows = bars.map(({ name, value: { median, least, most }, isOurs }, at) => {
    const y = TOP + at * ROW;
    const middle = y + ROW / 2 - 3;
    const [from, to] = [LEFT + least * scale, LEFT + most * scale].map((x) => x.toFixed(1));
    const width = (median * scale).toFixed(1);
    return [
      `<text x="${LEFT - 8}" y="${middle + 4}" text-anchor="end">${escaped(name)}</text>`,
      `<rect x="${LEFT}" y="${y}" width="${width}" height="${ROW - 6}" fill="${isOurs ? "#1a7f5a" : "#9aa5b1"}"/>`,
      `<path d="M${from} ${middle}H${to}" stroke="#222" stroke-width="1.5"/>`,
      `<text x="${LEFT + most * scale + 6}" y="${middle + 4}">${median.toFixed(0)}</text>`,
    ].join("\n");
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${LEFT + WIDTH + RIGHT}" height="${height}" font-family="sans-serif" font-size="12">
<title>${escaped(title)}</title>
<rect width="100%" height="100%" fill="#fff"/>
<text x="8" y="18" font-weight="bold">${escaped(title)}</text>
<text x="8" y="34" fill="#555">${escaped(unit)}</text>
${rows.join("\n")}
</svg>
`;
}
