/** Commands in one process that has loaded the command line, so that each takes milliseconds. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { fileURLToPath } from "node:url";
import { nodeCommand } from "./node.ts";
import { type CommandResult, cleanEnvironment, runCommand } from "./process.ts";

const program = fileURLToPath(new URL("./warm-command-program.ts", import.meta.url));

/** Commands that serve until a signal ends them, or that end their process. */
const own = new Set(["serve", "engine", "mcp"]);

/** What has run in a process of its own before. */
const known = new Set<string>();

let warm: ChildProcess | undefined;
let isBusy = false;

function warmProcess(): ChildProcess {
  if (warm?.connected) return warm;
  const command = nodeCommand([program]);
  warm = spawn(...command, { cwd: tmpdir(), stdio: ["ignore", "inherit", "inherit", "ipc"] });
  warm.unref();
  return warm;
}

/**
 * Runs `gatehouse <flags>`. The first of each command is a process of its own, and so is one that
 * runs beside another. The rest share a process.
 */
export async function runWarm(
  home: string,
  flags: string[],
  input?: string,
): Promise<CommandResult> {
  const name = flags.slice(0, 2).join(" ");
  if (own.has(flags[0] ?? "") || isBusy || !known.has(name)) {
    known.add(name);
    return runCommand(home, flags, input === undefined ? {} : { input });
  }
  isBusy = true;
  const child = warmProcess();
  child.channel?.ref();
  const answered = Promise.race([
    once(child, "message"),
    once(child, "exit").then(() => {
      throw new Error(`${name} ended the process that commands share`);
    }),
  ]);
  child.send({ flags, cwd: home, env: cleanEnvironment(home), input: input ?? "" });
  try {
    const [result] = await answered;
    return result;
  } finally {
    child.channel?.unref();
    isBusy = false;
  }
}
