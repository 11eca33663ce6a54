import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmod, readdir, readFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import t from "tap";
import { readHolder } from "../../src/core/access/grant.ts";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import { changeAccessFile } from "../../src/core/access/write.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { caseCount } from "../kit/nightly.ts";
import { lackDescriptors } from "../kit/no-descriptor.ts";
import { nodeCommand } from "../kit/node.ts";
import { accessFile, grant, testsOn, user } from "./kit.ts";

const script = fileURLToPath(new URL("writer.ts", import.meta.url));
const text = `# kept\n${user("root")}${grant("root", "*", "Owner")}`;
const NOBODY = 65_534;
const onFile = testsOn(text);

// Hundreds of processes take their time on a busy machine.

function startWriter(file: string, prefix: string, count: number): ChildProcess {
  return spawn(...nodeCommand([script, file, prefix, String(count)]), {
    stdio: ["ignore", "pipe", "inherit"],
    timeout: PATIENCE_MS,
  });
}

async function usersIn(file: string): Promise<string[]> {
  const written = await readFile(file, "utf8");
  return [...parseAccessFile(written, file).users.keys()];
}

onFile("four processes with 25 writers each lose nothing", async (t, file) => {
  const prefixes = ["a", "b", "c", "d"];
  const codes = await Promise.all(
    prefixes.map(async (prefix) => (await once(startWriter(file, prefix, 25), "exit"))[0]),
  );
  t.strictSame(codes, [0, 0, 0, 0]);
  const expected = prefixes.flatMap((prefix) =>
    Array.from({ length: 25 }, (_, n) => `${prefix}-${n}`),
  );
  t.strictSame((await usersIn(file)).sort(), [...expected, "root"].sort());
});

/** Starts a writer, kills it a moment later, and returns the names that it had acknowledged. */
async function killWriter(file: string, prefix: string, patienceMs: number): Promise<string[]> {
  const writer = startWriter(file, prefix, 0);
  const { stdout } = writer;
  if (stdout === null) throw new Error("its output is not piped");
  let output = "";
  stdout.setEncoding("utf8").on("data", (printed: string) => (output += printed));
  await once(stdout, "data");
  await delay(Math.random() * patienceMs);
  const closed = once(writer, "close");
  writer.kill("SIGKILL");
  await closed;
  const [, ...acknowledged] = output.split("\n").slice(0, -1);
  return acknowledged;
}

onFile("killed writers lose no acknowledged change", async (t, file) => {
  const acknowledged: string[] = [];
  let patienceMs = 40;
  for (let round = 0; round < caseCount(6, 50); round += 1) {
    const writers = ["a", "b", "c", "d"].map((letter) =>
      killWriter(file, `${letter}${round}`, patienceMs),
    );
    acknowledged.push(...(await Promise.all(writers)).flat());
    // A busy machine may need longer for the first write.
    if (acknowledged.length === 0) patienceMs = Math.min(2 * patienceMs, 2000);
    const whole = new Set(await usersIn(file));
    t.ok(
      acknowledged.every((name) => whole.has(name)),
      "the file is whole and holds all that was acknowledged",
    );
    const ghost = {
      holder: readHolder(`after-${round}`),
      database: "main",
      role: "ReadOnly",
    } as const;
    // It rejects if the lock is not free.
    await changeAccessFile(file, () => [{ kind: "add-grant", grant: ghost }]);
    t.same(new Set(await usersIn(file)), whole);
  }
  t.ok(acknowledged.length > 0, "some had written something");
  t.match(await readFile(file, "utf8"), /^# kept\n/);
  const left = (await readdir(path.dirname(file))).filter((name) => name.endsWith(".new"));
  t.strictSame(left, [], "nor is anything half written left");
});

onFile("a read-only directory refuses the change", async (t, file) => {
  const isRoot = process.getuid?.() === 0;
  await chmod(file, 0o644);
  await chmod(path.dirname(file), 0o555);
  const flags = [script, file, "x", "1", ...(isRoot ? [String(NOBODY)] : [])];
  const { stdout, status } = spawnSync(...nodeCommand(flags), { encoding: "utf8" });
  await chmod(path.dirname(file), 0o755);
  t.strictSame([status, stdout], [1, "access_file_read_only"]);
  t.equal(await readFile(file, "utf8"), text);
  t.strictSame(await readdir(path.dirname(file)), [path.basename(file)]);
});

onFile("a lack of descriptors refuses the change", async (t, file) => {
  t.teardown(lackDescriptors(() => true));
  const changing = changeAccessFile(file, () => []);
  await t.rejects(changing, { code: "access_file_read_only" });
});

t.test("a file with a read-only mode refuses the change, also by root", async (t) => {
  for (const mode of [0o400, 0o444]) {
    const file = accessFile(t, text);
    await chmod(file, mode);
    const { stdout } = spawnSync(...nodeCommand([script, file, "x", "1"]), { encoding: "utf8" });
    t.equal(stdout, "access_file_read_only");
    t.equal(await readFile(file, "utf8"), text);
  }
});

/** Runs `commands` in a name space of mounts of their own; undefined where there can be none. */
function withMounts(commands: string): { status: number | null; stdout: string } | undefined {
  const own = ["--map-root-user", "--mount", "sh", "-e", "-c"];
  const isPossible = spawnSync("unshare", [...own, "mount -t tmpfs none /mnt"]).status === 0;
  return isPossible ? spawnSync("unshare", [...own, commands], { encoding: "utf8" }) : undefined;
}

const canMount = withMounts("true") !== undefined;
const whyNot = canMount ? false : "this system does not allow mounts";

t.test("a read-only file system refuses the change", { skip: whyNot }, async (t) => {
  const file = accessFile(t, text);
  const directory = path.dirname(file);
  const result = withMounts(
    `mount --bind ${directory} ${directory}
     mount -o remount,bind,ro ${directory}
     ${process.execPath} ${script} ${file} x 1`,
  );
  t.match(result, { status: 1, stdout: "access_file_read_only" });
  t.strictSame(await readdir(directory), [path.basename(file)]);
});

t.test("a file that is a mount point refuses the change", { skip: whyNot }, async (t) => {
  const file = accessFile(t, text);
  const directory = path.dirname(file);
  const result = withMounts(
    `mount --bind ${file} ${file}
     ${process.execPath} ${script} ${file} x 1`,
  );
  t.match(result, { status: 1, stdout: "access_file_read_only" });
  t.equal(await readFile(file, "utf8"), text);
  const left = (await readdir(directory)).filter((name) => name.endsWith(".new"));
  t.strictSame(left, [], "nothing half written is left");
});
