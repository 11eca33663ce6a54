/** A process with network, process and mount namespaces of its own, which end with it. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

const flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
/** The first process of the namespace waits for all that have lost their own parents. */
const first = 'exec 3<&0; "$@" <&3 & wait $!';
/** Set in the environment of what runs inside. */
const MARK = "GATEHOUSE_TEST_SANDBOX";

/** Runs a program of the system to its end. @throws Error with what it has printed */
export function run(program: string, ...args: string[]): string {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: "utf8" });
  if (status === 0) return stdout;
  throw new Error(`${program} ${args.join(" ")}: ${error?.message ?? stderr}`);
}

/** True if this user may make namespaces, and bridges in them. */
function canMake(): boolean {
  const program = "ip link add name try type bridge && mount -t tmpfs none /mnt";
  return spawnSync("unshare", [...flags, "sh", "-c", program]).status === 0;
}

/** True inside. */
export function isInside(): boolean {
  return process.env[MARK] !== undefined;
}

/**
 * Runs this very program once more, inside, where all that it starts ends with it, however it ends.
 *
 * @returns its exit code; undefined if it is inside already, or this user may make no namespaces
 */
export async function runInside(): Promise<number | undefined> {
  if (isInside()) {
    settleInside();
    return undefined;
  }
  if (!canMake()) return undefined;
  const directory = mkdtempSync(path.join(tmpdir(), "gatehouse-sandbox-"));
  const env = { ...process.env, [MARK]: directory, TMPDIR: directory };
  // However this process ends, what is inside sees its input end.
  const command = [process.execPath, ...process.argv.slice(1)];
  const child = spawn("unshare", [...flags, "sh", "-c", first, "sh", ...command], {
    ...{ env, stdio: ["pipe", "inherit", "inherit"] },
  });
  const end = () => child.kill("SIGKILL");
  process.once("SIGTERM", end).once("SIGINT", end);
  const [code] = await once(child, "exit");
  rmSync(directory, { recursive: true, force: true });
  return code ?? 1;
}

function settleInside(): void {
  const directory = process.env[MARK] ?? "";
  run("mount", "-t", "tmpfs", "none", directory);
  chmodSync(directory, 0o755);
  mkdirSync("/run/netns", { recursive: true });
  run("mount", "-t", "tmpfs", "none", "/run/netns");
  run("ip", "link", "set", "lo", "up");
  process.stdin.on("end", () => process.exit(1)).resume();
}
