import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { Ajv } from "ajv";
import t from "tap";
import { parse } from "yaml";
import { deployed, deployedPath, findProgram } from "./programs.ts";

const chart = deployedPath("helm/gatehouse");
const manifests = deployed("kubernetes.yaml");
const values = parse(deployed("helm/gatehouse/values.yaml"));
const isAllowed = new Ajv().compile(JSON.parse(deployed("helm/gatehouse/values.schema.json")));

t.test("kubernetes.yaml is made of the chart as it is (deploy/helm/render)", async (t) => {
  const files = readdirSync(chart, { recursive: true, encoding: "utf8" })
    .filter((name) => statSync(path.join(chart, name)).isFile())
    .map((name) => `./${name}`)
    .sort();
  const digest = createHash("sha256");
  for (const name of files) digest.update(readFileSync(path.join(chart, name)));
  t.match(manifests, `of the chart ${digest.digest("hex")}\n`);
});

t.test("the chart's defaults are allowed, and what nobody knows is not", async (t) => {
  t.ok(isAllowed(values), JSON.stringify(isAllowed.errors));
  const { version } = JSON.parse(readFileSync(path.join(chart, "../../../package.json"), "utf8"));
  t.equal(parse(deployed("helm/gatehouse/Chart.yaml")).appVersion, version);
  const refused = [
    { ...values, replicas: 0 },
    { ...values, replica: 3 },
    { ...values, publicUrl: "http://gate.example.com" },
    { ...values, store: { ...values.store, maxStaleness: 1 } },
    { ...values, store: { ...values.store, url: "mysql://gatehouse@db/gatehouse" } },
    { ...values, store: { ...values.store, url: "postgres://user:password@db/gatehouse" } },
    { ...values, upstream: { url: "http://database:9090" } },
  ];
  for (const wrong of refused) t.notOk(isAllowed(wrong), JSON.stringify(wrong));
});

const helm = findProgram("helm");

if (helm !== undefined) {
  t.test("helm finds nothing wrong, and renders kubernetes.yaml", async (t) => {
    const run = (...flags: string[]) =>
      execFileSync(helm, flags, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
    t.match(run("lint", "--strict", chart), "0 chart(s) failed");
    const template = ["template", "gatehouse", chart, "--namespace", "gatehouse"];
    t.ok(manifests.endsWith(run(...template)));
    const other = ["--set", "postgresql.enabled=false"];
    t.throws(() => run(...template, ...other), "a store has to be named then");
    const file = "--set-string=accessFile=[[users]]";
    const rendered = run(...template, ...other, "--set", "store.url=postgres://g@db/g", file);
    t.match(rendered, 'access = "file"');
    t.notMatch(rendered, "StatefulSet");
  });
}
