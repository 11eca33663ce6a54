/** Commands in one process that has loaded the command line already, which saves a second each. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { fileURLToPath } from "node:url";
import { caseCount } from "./nightly.ts";
import { nodeCommand } from "./node.ts";
import { type CommandResult, cleanEnvironment, runCommand } from "./process.ts";

const program = fileURLToPath(new URL("./warm-command-program.ts", import.meta.url));

/** Commands that run until a signal, or that end their process. */
const own = new Set(["serve", "mcp"]);

/** In the tests of the commands, each also runs in its own process, at night with each subcommand. */
const provesCommands = process.argv[1]?.includes("/test/commands/") === true;

/** Commands that have run in their own process. */
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
 * Runs `gatehouse <flags>` in a process that commands share. Parallel runs have their own process,
 * and so has the first run of each command in `test/commands/`.
 */
export async function runWarm(
  home: string,
  flags: string[],
  input = "",
  env: NodeJS.ProcessEnv = {},
): Promise<CommandResult> {
  const name = flags.slice(0, caseCount(1, 2)).join(" ");
  const isFirst = provesCommands && !known.has(name);
  if (own.has(flags[0] ?? "") || isBusy || isFirst) {
    known.add(name);
    return runCommand(home, flags, { input, env });
  }
  isBusy = true;
  const child = warmProcess();
  child.channel?.ref();
  const waiting = new AbortController();
  const answered = Promise.race([
    once(child, "message", waiting),
    once(child, "exit", waiting).then(() => {
      throw new Error(`${name} ended the process that commands share`);
    }),
  ]);
  child.send({ flags, cwd: home, env: cleanEnvironment(home, env), input });
  try {
    const [result] = await answered;
    return result;
  } finally {
    waiting.abort();
    child.channel?.unref();
    isBusy = false;
  }
}
