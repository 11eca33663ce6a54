import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

const flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
/** The first process of the namespace must wait for orphans. */
const first = 'exec 3<&0; "$@" <&3 & wait $!';
/** Environment variable that is set inside the sandbox. */
const MARK = "GATEHOUSE_TEST_SANDBOX";

/** @returns the output @throws Error with the error output */
export function run(program: string, ...args: string[]): string {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: "utf8" });
  if (status === 0) return stdout;
  throw new Error(`${program} ${args.join(" ")}: ${error?.message ?? stderr}`);
}

/** True if this user may create namespaces, and bridges in them. */
function canMake(): boolean {
  const program = "ip link add name try type bridge && mount -t tmpfs none /mnt";
  return spawnSync("unshare", [...flags, "sh", "-c", program]).status === 0;
}

export function isInside(): boolean {
  return process.env[MARK] !== undefined;
}

/**
 * Runs this program again with its own network, process and mount namespaces. All processes that
 * it starts end with it.
 *
 * @returns its exit code; undefined inside the sandbox, and without the right to create namespaces
 */
export async function runInside(): Promise<number | undefined> {
  if (isInside()) {
    prepareInside();
    return undefined;
  }
  if (!canMake()) return undefined;
  const directory = mkdtempSync(path.join(tmpdir(), "gatehouse-sandbox-"));
  const env = { ...process.env, [MARK]: directory, TMPDIR: directory };
  // If this process dies, the one inside notices the end of its input.
  const command = [process.execPath, ...process.argv.slice(1)];
  const child = spawn("unshare", [...flags, "sh", "-c", first, "sh", ...command], {
    env,
    stdio: ["pipe", "inherit", "inherit"],
  });
  const end = () => child.kill("SIGKILL");
  process.once("SIGTERM", end).once("SIGINT", end);
  const [code] = await once(child, "exit");
  rmSync(directory, { recursive: true, force: true });
  return code ?? 1;
}

function prepareInside(): void {
  const directory = process.env[MARK] ?? "";
  run("mount", "-t", "tmpfs", "none", directory);
  chmodSync(directory, 0o755);
  mkdirSync("/run/netns", { recursive: true });
  run("mount", "-t", "tmpfs", "none", "/run/netns");
  run("ip", "link", "set", "lo", "up");
  process.stdin.on("end", () => process.exit(1)).resume();
}
