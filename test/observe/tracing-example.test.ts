import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import t, { type Test } from "tap";
import { ask } from "../kit/client.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { nodeCommand } from "../kit/node.ts";
import { codeIn, readPage, sectionOf } from "../kit/page.ts";
import { cleanEnvironment } from "../kit/process.ts";
import { clientTrace, Recorder } from "./traced.ts";

const project = path.join(import.meta.dirname, "../..");
const section = sectionOf(readPage("maintenance.md").content, "Trace requests");
const exporter = "@opentelemetry/exporter-trace-otlp-http";

function block(language: string, containing: string): string {
  return codeIn(section, language).find((code) => code.includes(containing)) ?? "";
}

function layOut(t: Test): string {
  const directory = temporaryHome(t);
  const [, packages = ""] = /^npm install (.*)$/m.exec(block("sh", "npm install")) ?? [];
  mkdirSync(path.join(directory, "node_modules/@opentelemetry"), { recursive: true });
  for (const name of packages.split(" ").filter((name) => name !== exporter)) {
    const place = path.join("node_modules", name);
    symlinkSync(path.join(project, place), path.join(directory, place));
  }
  const own = path.join(directory, "node_modules", exporter);
  mkdirSync(own);
  const spanFile = pathToFileURL(path.join(import.meta.dirname, "span-file.ts"));
  const text = `export { SpanFile as OTLPTraceExporter } from "${spanFile}";\n`;
  writeFileSync(path.join(own, "package.json"), '{ "type": "module", "exports": "./index.js" }');
  writeFileSync(path.join(own, "index.js"), text);
  writeFileSync(path.join(directory, "otel.mjs"), block("js", exporter));
  return directory;
}

t.test("the example of the documentation traces every worker", async (t) => {
  const recorder = new Recorder(t);
  const home = temporaryHome(t);
  writeFileSync(
    path.join(home, "gateway.toml"),
    '[server]\nworkers = 2\n[upstream]\nurl = "http://127.0.0.1:1"\n',
  );
  const command = block("sh", "--import").trim().split(" ").slice(1);
  const flags = command.map((flag) =>
    flag.replace("/etc/gatehouse/otel", layOut(t)).replace("bin", path.join(project, "bin")),
  );
  const child = spawn(...nodeCommand([...flags, "--port", "0"]), {
    cwd: home,
    env: cleanEnvironment(home, {
      GATEHOUSE_ADMIN_PASSWORD: "correct horse",
      ...recorder.fileEnv,
    }),
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exit = once(child, "exit");
  t.teardown(() => child.kill("SIGKILL"));
  const tracing = new Set<number>();
  let url = "";
  for await (const line of createInterface(child.stdout)) {
    const { msg, worker, url: found } = JSON.parse(line);
    if (/traced/.test(msg)) tracing.add(worker);
    if (/^listening/.test(msg)) url = found;
    if (url !== "") break;
  }
  child.stdout.resume();
  t.strictSame([...tracing].sort(), [1, 2], "each worker logs it");

  const client = clientTrace();
  const headers = { traceparent: client.traceparent };
  await ask(`${url}/healthz`, { headers });
  child.kill("SIGTERM");
  t.strictSame(await exit, [0, null]);
  const spans = recorder.spans.filter(({ traceId }) => traceId === client.traceId);
  t.match(spans, [{ name: "GET /healthz", parentId: client.spanId, service: "gatehouse" }]);
});
