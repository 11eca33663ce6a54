/**
 * Measures how the cost of a request grows with users, tokens, connections, rules, processes and replicas;
 * for users also memory, and the time of a start and a change.
 *
 * `node bench/scale.ts [--only users,tokens,connections,rules,workers,replicas] [--at 1000,10000] [--rounds 3]
 * [--seconds 2] [--json FILE] [--plot FILE]`
 *
 * `--at` runs only these sizes. `--json` adds the results to those in the file and draws all of them, so a
 * measurement can be split into several runs. `--only ''` only draws.
 */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import * as z from "zod";
import { describeMachine } from "./rig/machine.ts";
import { type Panel, panelPlot } from "./rig/panels.ts";
import { markdownTable } from "./rig/table.ts";
import { measureReplicas, measureSizes } from "./scale/measure.ts";
import { sections, sizes } from "./scale/sizes.ts";

const { values: flags } = parseArgs({
  options: {
    only: { type: "string" },
    at: { type: "string" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "2" },
    json: { type: "string" },
    plot: { type: "string" },
  },
});
const effort = { rounds: Number(flags.rounds), seconds: Number(flags.seconds) };
const wanted = (flags.only?.split(",") ?? sections).filter((name) => name !== "");
const unknown = wanted.filter((name) => !sections.includes(name));
if (unknown.length > 0)
  throw new Error(`--only ${unknown.join(", ")}; allowed: ${sections.join(", ")}`);
const places = flags.at?.split(",").map(Number);

const found = z.record(
  z.string(),
  z.array(z.object({ name: z.string(), at: z.number(), values: z.record(z.string(), z.number()) })),
);
type Found = z.infer<typeof found>;
const results: Found =
  flags.json !== undefined && existsSync(flags.json)
    ? found.parse(JSON.parse(readFileSync(flags.json, "utf8")))
    : {};

function noteIn(section: string) {
  return (row: Found[string][number]): void => {
    const others = (results[section] ?? []).filter(({ at }) => at !== row.at);
    results[section] = [...others, row].sort((one, other) => one.at - other.at);
    console.error(row.name, JSON.stringify(row.values));
    if (flags.json !== undefined) writeFileSync(flags.json, JSON.stringify(results, undefined, 2));
  };
}

function tableOf(section: string): string {
  const rows = results[section] ?? [];
  const head = Object.keys(rows[0]?.values ?? {});
  const cells = rows.map(({ name, values }) => [
    name,
    ...head.map((key) => (values[key] ?? Number.NaN).toFixed(1)),
  ]);
  return markdownTable([section, ...head], cells);
}

/** The charts: section, value, and whether sizes differ by orders of magnitude. */
const drawn = [
  { section: "users", key: "µs of CPU", title: "Users: µs of CPU a request", isLog: true },
  { section: "users", key: "MB loaded", title: "Users: MB of memory", isLog: true },
  {
    section: "users",
    key: "edit in force, ms",
    title: "Users: ms until an edit is in force",
    isLog: true,
  },
  {
    section: "tokens",
    key: "µs of CPU",
    title: "Tokens in turn: µs of CPU a request",
    isLog: true,
  },
  {
    section: "connections",
    key: "µs of CPU",
    title: "Busy connections: µs of CPU a request",
    isLog: true,
  },
  { section: "connections", key: "p99, ms", title: "Busy connections: p99 in ms", isLog: true },
  {
    section: "rules",
    key: "µs of CPU",
    title: "10,000 users with: µs of CPU a request",
    isLog: false,
  },
  { section: "workers", key: "µs of CPU", title: "Processes: µs of CPU a request", isLog: false },
  { section: "replicas", key: "µs of CPU", title: "Replicas: µs of CPU a request", isLog: false },
] as const;

function panels(): Panel[] {
  return drawn.flatMap(({ section, key, title, isLog }) => {
    const points = (results[section] ?? []).flatMap(({ name, at, values }) => {
      const value = values[key];
      return value === undefined ? [] : [{ name, at, value }];
    });
    return points.length === 0 ? [] : [{ title, isLog, points }];
  });
}

console.log(`${describeMachine().join("; ")}\n`);
for (const section of wanted) {
  const note = noteIn(section);
  const asked = sizes.filter(
    (size) => size.section === section && places?.includes(size.at) !== false,
  );
  await (section === "replicas"
    ? measureReplicas(effort, note)
    : measureSizes(asked, effort, note));
  console.log(`${tableOf(section)}\n`);
}
if (flags.plot !== undefined) {
  writeFileSync(
    flags.plot,
    panelPlot("How a request's cost grows: medians of the rounds", panels()),
  );
}
