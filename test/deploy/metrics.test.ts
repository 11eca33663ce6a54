import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { parse } from "yaml";
import * as z from "zod";
import { refusals } from "../../src/core/base/refusal.ts";
import { queryRefusals } from "../../src/core/query/refusal.ts";
import { words } from "../kit/words.ts";
import type { ServedMetric } from "../observe/exposition.ts";
import { everyMetric } from "../observe/served-metrics.ts";
import { deployed, deployedPath, findProgram } from "./programs.ts";

const added = new Set(["job", "instance", "le"]);
const reasons = new Set(["allowed", ...Object.keys(refusals), ...Object.keys(queryRefusals)]);
const functions = new Set(
  words("sum min count topk by rate increase histogram_quantile time label_values"),
);
const ending = /_(?:bucket|sum|count)$/;
const documents = path.join(import.meta.dirname, "../../docs");

const served = new Map<string, ServedMetric>([
  // Prometheus adds it for each target.
  ["up", { type: "gauge", labels: new Set(), samples: [] }],
]);
t.before(async () => {
  for (const [name, metric] of await everyMetric(t)) served.set(name, metric);
});

function metricOf(series: string): ServedMetric | undefined {
  const metric = served.get(series);
  if (metric !== undefined) return metric;
  const whole = served.get(series.replace(ending, ""));
  return whole?.type === "histogram" ? whole : undefined;
}

interface Named {
  readonly series: string[];
  readonly labels: string[];
  readonly values: [string, string][];
}

function namesIn(expression: string): Named {
  const labels: string[] = [];
  const values: [string, string][] = [];
  const bare = expression
    .replace(/\{([^}]*)\}/g, (_, inside: string) => {
      for (const [, label = "", operator, value = ""] of inside.matchAll(
        /(\w+)(=~|!~|!=|=)"([^"]*)"/g,
      )) {
        labels.push(label);
        if (operator === "=") values.push([label, value]);
        if (operator === "=~" && !value.startsWith("$")) {
          for (const one of value.split("|")) values.push([label, one]);
        }
      }
      return "";
    })
    .replace(/\bby \(([^)]*)\)/g, (_, inside: string) => {
      labels.push(...inside.split(",").map((label) => label.trim()));
      return "";
    })
    .replace(/\[[^\]]*\]/g, "")
    .replace(/, instance\)$/, ")");
  const words = bare.match(/\b[a-z_]\w*/g) ?? [];
  return { series: words.filter((word) => !functions.has(word)), labels, values };
}

function faultsOf(expression: string): string[] {
  const { series, labels, values } = namesIn(expression);
  const metrics = series.map((name) => [name, metricOf(name)] as const);
  const unknown = metrics.filter(([, metric]) => metric === undefined).map(([name]) => name);
  const isKnown = (label: string) =>
    added.has(label) || metrics.some(([, metric]) => metric?.labels.has(label));
  const samples = metrics.flatMap(([, metric]) => metric?.samples ?? []);
  return [
    ...(series.length === 0 ? ["no metric"] : unknown),
    ...labels.filter((label) => !isKnown(label)),
    ...values
      .filter(([label, value]) => !(label === "job" || (label === "reason" && reasons.has(value))))
      .map(([label, value]) => `${label}="${value}"`)
      .filter((pair) => !samples.some((sample) => sample.includes(pair))),
  ];
}

const alerts = z.object({
  groups: z.array(
    z.object({
      rules: z.array(
        z.object({
          alert: z.string(),
          expr: z.string(),
          labels: z.object({ severity: z.enum(["warning", "critical"]) }),
          annotations: z.object({ summary: z.string(), description: z.string() }),
        }),
      ),
    }),
  ),
});

t.test("alerts use only metrics and labels that a gateway serves", async (t) => {
  const { groups } = alerts.parse(parse(deployed("prometheus-alerts.yml")));
  const rules = groups.flatMap(({ rules }) => rules);
  t.ok(rules.length > 5);
  for (const { alert, expr } of rules) t.strictSame(faultsOf(expr), [], alert);
});

const dashboard = z.object({
  panels: z.array(
    z.object({
      title: z.string(),
      targets: z.array(z.object({ expr: z.string(), legendFormat: z.string() })).optional(),
    }),
  ),
  templating: z.object({ list: z.array(z.object({ name: z.string() })) }),
});

t.test("the troubleshooting section covers every alert", async (t) => {
  const page = readFileSync(path.join(documents, "maintenance.md"), "utf8");
  const [, section = ""] = page.split("## Troubleshooting\n");
  const [rows = ""] = section.split("\n## ");
  const named = Array.from(rows.matchAll(/`(Gatehouse\w+)`/g), ([, name = ""]) => name);
  const { groups } = alerts.parse(parse(deployed("prometheus-alerts.yml")));
  const all = groups.flatMap(({ rules }) => rules.map(({ alert }) => alert));
  t.strictSame(named.sort(), all.sort());
});

t.test("dashboard panels use only metrics and labels that a gateway serves", async (t) => {
  const text = deployed("grafana-dashboard.json");
  const { panels, templating } = dashboard.parse(JSON.parse(text));
  const targets = panels.flatMap(({ title, targets = [] }) =>
    targets.map((target) => ({ title, ...target })),
  );
  for (const { title, expr, legendFormat } of targets) {
    t.strictSame(faultsOf(expr), [], title);
    const used = Array.from(legendFormat.matchAll(/\{\{(\w+)\}\}/g), ([, label = ""]) => label);
    const kept = namesIn(expr).labels.concat("instance");
    for (const label of used) t.ok(kept.includes(label), `${title}: ${label}`);
  }
  const variables = new Set(templating.list.map(({ name }) => name).concat("__rate_interval"));
  for (const [, name = ""] of text.matchAll(/\$\{?(\w+)/g)) t.ok(variables.has(name), name);
});

t.test("the dashboard shows every metric of the gateway and of docs/metrics.md", async (t) => {
  const text = deployed("grafana-dashboard.json");
  const page = readFileSync(path.join(documents, "metrics.md"), "utf8");
  const listed = Array.from(page.matchAll(/^\| `(\w+)`/gm), ([, name = ""]) => name);
  t.ok(listed.length > 20);
  for (const name of listed) t.ok(text.includes(name), name);
  const own = [...served.keys()].filter((name) => name.startsWith("gatehouse_"));
  for (const name of own) t.ok(text.includes(name), name);
});

const promtool = findProgram("promtool");
if (promtool !== undefined) {
  t.test("promtool accepts the alerts", async (t) => {
    const flags = ["check", "rules", deployedPath("prometheus-alerts.yml")];
    t.match(execFileSync(promtool, flags, { encoding: "utf8" }), /SUCCESS: \d+ rules found/);
  });
}

t.test("docs/metrics.md lists exactly the served metrics, with type and labels", async (t) => {
  const own = Array.from(served)
    .filter(([name]) => name.startsWith("gatehouse_"))
    .map(([name, { type, labels }]) => [name, type, [...labels].sort().join(", ")]);
  const rows = readFileSync(path.join(documents, "metrics.md"), "utf8")
    .split("\n")
    .filter((line) => line.startsWith("| `"));
  const cells = rows.map((row) =>
    row
      .slice(1, -1)
      .split("|")
      .map((cell) => cell.trim()),
  );
  const documented = cells
    .filter(([name = ""]) => name.startsWith("`gatehouse_"))
    .map(([name = "", type, labels = ""]) => [
      name.slice(1, -1),
      type,
      (labels.match(/\w+/g) ?? []).sort().join(", "),
    ]);
  t.strictSame(documented.sort(), own.sort());
  for (const [name = ""] of cells) t.ok(served.has(name.slice(1, -1)), name);
});
