/** Runs the suite of the preset against a real Chroma, and its Python client with each role. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import * as z from "zod";
import { checkSuite, openPreset } from "../databases/kit/open.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { readPage } from "../kit/page.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../..");
const VERSION = "1.5.9";
const place = path.join(root, `node_modules/.cache/chroma-${VERSION}`);

const hasPython = await run("python3", ["--version"]).then(
  () => true,
  () => false,
);

async function install(): Promise<void> {
  if (existsSync(path.join(place, "bin/chroma"))) return;
  await run("python3", ["-m", "venv", place]);
  await run(path.join(place, "bin/pip"), ["install", `chromadb==${VERSION}`, "langchain-chroma"]);
}

/** @returns its URL */
async function startChroma(t: Test): Promise<string> {
  const port = await freePort();
  const flags = ["run", "--path", temporaryHome(t), "--host", "127.0.0.1", "--port", String(port)];
  const child = spawn(path.join(place, "bin/chroma"), flags, { stdio: "ignore" });
  t.teardown(async () => {
    child.kill();
    if (child.exitCode === null) await once(child, "close");
  });
  const url = `http://127.0.0.1:${port}`;
  await eventually("Chroma responds", async () => {
    const answer = await fetch(`${url}/api/v2/heartbeat`).catch(() => undefined);
    return answer?.ok === true;
  });
  return url;
}

const report = z.object({
  calls: z.record(z.string(), z.string()),
  langchain: z.record(z.string(), z.string()),
  methods: z.array(z.string()),
  version: z.string(),
});

/** From the least to the most, by the user of the test. */
const roles = new Map([
  ["any user", "una"],
  ["ReadOnly", "rita"],
  ["ReadWrite", "wanda"],
  ["DbAdmin", "dora"],
  ["Owner", "olga"],
  ["administrator", "root"],
  ["none", undefined],
]);
const order = [...roles.keys()];

/** Methods and properties that send nothing. */
const local = new Set([
  "clear_system_cache",
  "close",
  "database",
  "from_system",
  "get_chroma_cloud_api_key_from_clients",
  "get_settings",
  "tenant",
  "Collection.configuration",
  "Collection.configuration_json",
  "Collection.database",
  "Collection.get_model",
  "Collection.id",
  "Collection.metadata",
  "Collection.name",
  "Collection.schema",
  "Collection.tenant",
]);

const langchain = new Map([
  ["open a new collection", "DbAdmin"],
  ["open", "ReadOnly"],
  ["similarity_search", "ReadOnly"],
  ["get_by_ids", "ReadOnly"],
  ["add_texts", "ReadWrite"],
  ["delete", "ReadWrite"],
  ["delete_collection", "DbAdmin"],
]);

t.test(
  "Chroma behind its preset",
  { skip: hasPython ? false : "python3 is not installed", timeout: 1_800_000 },
  async (t) => {
    await install();
    const url = await startChroma(t);

    await t.test("every check of the suite holds", (t) => checkSuite(t, "chroma", url, 1000));

    await t.test("the Python client may do what docs/chroma.md says", async (t) => {
      const grants = [
        "root * Owner",
        "una elsewhere ReadOnly",
        "rita shop ReadOnly",
        "wanda shop ReadWrite",
        "dora shop DbAdmin",
        "olga shop Owner",
        "olga created Owner",
      ];
      const { gateway, login } = await openPreset(t, "chroma", url, { grants });
      const admin = await login("root");
      for (const name of ["shop", "elsewhere"]) {
        const path = "/api/v2/tenants/default_tenant/databases";
        t.equal((await gateway.send("POST", path, { name }, admin)).status, 200);
      }
      const documented = new Map<string, string>();
      for (const [calls = "", least = ""] of readPage("chroma.md").rows("Call", "Least role")) {
        for (const call of calls.split(", ")) documented.set(call, least);
      }
      const { port } = new URL(gateway.url);
      for (const [role, user] of roles) {
        if (user === undefined) continue;
        const database = user === "una" ? "elsewhere" : "shop";
        const program = path.join(import.meta.dirname, "chroma-client.py");
        const { stdout } = await run(path.join(place, "bin/python"), [
          program,
          port,
          await login(user),
          admin,
          database,
        ]);
        const found = report.parse(JSON.parse(stdout));
        t.equal(found.version, VERSION);
        const called = Object.keys(found.calls);
        t.same([...documented.keys()].sort(), called.sort(), "the page lists every call");
        t.same(found.methods.filter((name) => !local.has(name)).sort(), called, "of the client");
        for (const [name, outcome] of Object.entries(found.calls)) {
          const least = documented.get(name) ?? "";
          const isAllowed = order.indexOf(role) >= order.indexOf(least);
          t.equal(outcome, isAllowed ? "allowed" : "refused", `${role}: ${name}`);
        }
        for (const [name, outcome] of Object.entries(found.langchain)) {
          const isAllowed = order.indexOf(role) >= order.indexOf(langchain.get(name) ?? "");
          t.equal(outcome, isAllowed ? "allowed" : "refused", `${role}: LangChain ${name}`);
        }
      }
    });
  },
);
