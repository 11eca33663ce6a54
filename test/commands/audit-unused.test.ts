/** Entries that nobody has used, told by the index of a long audit. */
import { statSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { extendIndex } from "../../src/observe/audit-index.ts";
import { grant, user } from "../access/kit.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";

const home = temporaryHome(t);
const file = path.join(home, "audit.log");
const DAY_MS = 24 * 3_600_000;

interface Use {
  readonly entry?: string;
  readonly decision?: string;
  readonly more?: object;
}

function line(name: string, day: number, { entry = "main", decision = "allow", more }: Use = {}) {
  const time = new Date(Date.now() - (40 - day) * DAY_MS).toISOString();
  const operations = [{ operation: "Select", database: "main", tables: ["t"], entry }];
  const rest = { operations, operationCount: 1, decision, ...more, msg: "request" };
  return `${JSON.stringify({ level: "info", time, user: name, ...rest })}\n`;
}

/** Four days of one user's, about a block of the index. */
const busy = (day: number) => line("busy", day).repeat(25_000);

const audit = [
  [line("lapsed", 1), busy(2)],
  [line("once", 15, { entry: "main.t, main.u" }), busy(16)],
  [line("denied", 20, { decision: "deny" }), busy(21)],
  [line("boss", 25, { entry: "", more: { path: "/api/users" } }), busy(26)],
  [line("batch", 30, { entry: "side", more: { operationCount: 17 } }), busy(31)],
  [busy(39)],
];
writeFileSync(file, audit.flat().join(""));
writeFileSync(path.join(home, "gateway.toml"), '[audit]\nfile = "audit.log"\n');
const names = ["busy", "lapsed", "once", "denied", "boss", "batch"];
const entries = [
  ...names.map((name) => user(name)),
  grant("busy", "main", "ReadWrite"),
  grant("busy", "side", "ReadWrite"),
  grant("lapsed", "main", "ReadWrite"),
  grant("once", "main", "ReadWrite"),
  `${grant("once", "main", "ReadWrite").trim()}\ntables = ["u"]\n`,
  grant("denied", "main", "ReadWrite"),
  grant("boss", "main", "Owner"),
  grant("batch", "main", "ReadWrite"),
];
writeFileSync(path.join(home, "access_control.toml"), entries.join("\n"), { mode: 0o600 });

async function unused(): Promise<string[]> {
  const { stdout, stderr } = await runCommand(home, [
    "audit",
    "unused",
    "--since",
    "30d",
    "--json",
  ]);
  t.notMatch(stderr, "warning");
  const found: { username: string; entry: string }[] = JSON.parse(stdout);
  return found.map(({ username, entry }) => `${username} ${entry}`);
}

t.test("the index leaves out no use", async (t) => {
  const wanted = ["busy side", "lapsed main", "once main", "denied main"];
  t.strictSame(await unused(), wanted, "without it");
  await extendIndex(file, file, async () => {});
  const index = path.join(home, `.audit.log.${statSync(file).ino}.index`);
  t.ok(statSync(index).size > 5 * 8192, "there are several parts");
  t.strictSame(await unused(), wanted, "with it");
});
