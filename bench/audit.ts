/**
 * Measures searches in an audit file: `node bench/audit.ts [--megabytes 1024]`. Prints time, throughput
 * and peak memory of the command, and the time for the console's page of the newest lines.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readSync, statSync, writeFileSync, writeSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import type { AuditFilter } from "../src/core/observe/audit-filter.ts";
import { searchAudit } from "../src/core/observe/audit-search.ts";
import { openDirectory } from "./rig/opened.ts";

const { values: flags } = parseArgs({
  options: { megabytes: { type: "string", default: "1024" } },
});
const size = Number(flags.megabytes) * 1024 * 1024;
await using opened = new AsyncDisposableStack();
const home = openDirectory(opened);
const file = path.join(home, "audit.log");
const HOUR_MS = 3_600_000;

/** Writes lines of 1,000 users over the last 30 days. */
function writeLines(): void {
  const handle = openSync(file, "w", 0o600);
  const begin = Date.now() - 30 * 24 * HOUR_MS;
  let written = 0;
  for (let number = 0; written < size; ) {
    let lines = "";
    while (lines.length < 1_000_000) {
      const at = begin + ((written + lines.length) / size) * 30 * 24 * HOUR_MS;
      const operation = number % 50 === 0 ? "Delete" : "Select";
      const tail = number % 50 === 0 ? `"affected":3` : `"rows":10`;
      const shape = "columns(id, name, email) order_by(name) where(age >, name LIKE)";
      const id = number.toString(16).padStart(12, "0");
      lines +=
        `{"level":"info","time":"${new Date(at).toISOString()}","requestId":"0b9c3bd1-8f3f-4a57-9a3c-${id}"` +
        `,"address":"10.0.0.${number % 250}","method":"POST","path":"/query","user":"${number % 700_000 === 0 ? "rare" : `user${number % 1000}`}"` +
        `,"tokenId":"5f3d3a1c-8f3f-4a57-9a3c-${id}","via":"query","operations":[{"operation":"${operation}"` +
        `,"database":"main","tables":["table${number % 40}"],"role":"ReadWrite","entry":"main","shape":"${shape}"}]` +
        `,"operationCount":1,"decision":"allow",${tail},"accessVersion":"2c9aae597997","status":200,"ms":1.234,"bytes":512,"msg":"request"}\n`;
      number++;
    }
    written += writeSync(handle, lines);
  }
  closeSync(handle);
}

async function measure(flags: readonly string[]): Promise<void> {
  const program = new URL("../bin/gatehouse.js", import.meta.url).pathname;
  const start = performance.now();
  const child = spawn(
    "/usr/bin/time",
    ["-f", "%M %U %S", process.execPath, program, "audit", ...flags],
    {
      env: { ...process.env, GATEHOUSE_HOME: home },
      cwd: home,
    },
  );
  let lines = 0;
  let errors = "";
  child.stdout.on("data", (bytes: Buffer) => {
    for (const byte of bytes) if (byte === 10) lines++;
  });
  child.stderr.on("data", (bytes: Buffer) => (errors += bytes));
  await once(child, "close");
  const seconds = (performance.now() - start) / 1000;
  const rate = (statSync(file).size / 1e6 / seconds).toFixed(0);
  const [kibibytes = 0, user = 0, system = 0] = (errors.trim().split("\n").at(-1) ?? "")
    .split(" ")
    .map(Number);
  const what = `${lines} lines, ${(kibibytes / 1024).toFixed(0)} MiB of memory`;
  const time = `${seconds.toFixed(2)} s (${(user + system).toFixed(2)} s of a processor)`;
  console.log(`${flags.join(" ")}: ${time}, ${rate} MB/s, ${what}`);
}

/** Measures a page of the console without its time limit. */
async function measurePage(filter: Omit<AuditFilter, "since" | "until">): Promise<void> {
  const question = {
    filter: { ...filter, since: 0, until: Number.POSITIVE_INFINITY },
    file,
    visible: undefined,
    from: undefined,
    limit: 50,
    timeoutMs: Number.POSITIVE_INFINITY,
  };
  const start = performance.now();
  const { lines, bytesRead } = await searchAudit(question);
  const seconds = (performance.now() - start) / 1000;
  const read = `${(bytesRead / 1e6).toFixed(0)} MB read, ${(bytesRead / 1e6 / seconds).toFixed(0)} MB/s`;
  console.log(
    `page ${JSON.stringify(filter)}: ${seconds.toFixed(2)} s, ${lines.length} lines, ${read}`,
  );
}

/** The maximum read speed, for comparison. */
function readAll(): void {
  const handle = openSync(file, "r");
  const buffer = Buffer.alloc(1024 * 1024);
  const start = performance.now();
  while (readSync(handle, buffer) > 0);
  closeSync(handle);
  const seconds = (performance.now() - start) / 1000;
  console.log(`reading alone: ${(statSync(file).size / 1e6 / seconds).toFixed(0)} MB/s`);
}

writeFileSync(path.join(home, "gateway.toml"), `[audit]\nfile = "${file}"\n`);
const entries = ["user1", "user2", "nobody"].map(
  (name) => `[[acl]]\nusername = "${name}"\ndatabase = "main"\nrole = "ReadWrite"\n`,
);
const access = entries.join("\n");
writeFileSync(path.join(home, "access_control.toml"), access, { mode: 0o600 });
writeLines();
readAll();
await measure(["--user", "rare"]);
await measure(["--user", "user1"]);
await measure(["--operation", "Delete"]);
await measure(["--operation", "Delete", "--table", "table10", "--since", "24h"]);
await measure(["--denied"]);
await measure(["unused", "--since", "30d"]);
await measurePage({});
await measurePage({ user: "user1" });
await measurePage({ user: "user1", operation: "Delete" });
await measurePage({ outcome: "denied" });
await measurePage({ user: "rare" });
await measurePage({ user: "nobody" });
