import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import { temporaryHome } from "./kit/gateway.ts";
import { cleanEnvironment } from "./kit/process.ts";

const program = fileURLToPath(new URL("../bin/gatehouse.js", import.meta.url));

/** Runs a command that caches its compiled modules under `base`. */
function run(base: string): string {
  const { NODE_COMPILE_CACHE: _, NODE_OPTIONS: __, ...environment } = cleanEnvironment(base);
  const env = { ...environment, XDG_CACHE_HOME: base };
  return execFileSync(process.execPath, [program, "key", "--help"], { env, encoding: "utf8" });
}

function fileCount(directory: string): number {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).length;
}

t.test("compiled modules are cached for the next start", async (t) => {
  const base = temporaryHome(t);
  const version = run(base);
  const kept = fileCount(path.join(base, "gatehouse"));
  t.ok(kept > 10, `${kept} files`);
  t.equal(run(base), version);
});

t.test("a cache directory that others may write is not used", async (t) => {
  const open = temporaryHome(t);
  chmodSync(open, 0o777);
  t.match(run(open), /Usage/);
  t.equal(fileCount(open), 0);

  const own = temporaryHome(t);
  const cache = path.join(own, "gatehouse");
  mkdirSync(cache);
  chmodSync(cache, 0o770);
  t.match(run(own), /Usage/);
  t.equal(fileCount(own), 0);
});

t.test("a command runs where nothing can be cached", async (t) => {
  t.match(run("/proc/nowhere"), /Usage/);
});
