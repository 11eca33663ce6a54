import { Command, CommanderError } from "commander";
import { version } from "../core/base/product.ts";
import { endCommand, withHouseStyle } from "./options.ts";
import { reportFailure, USAGE } from "./output.ts";

/** The commands in the order of the help. Only the command that runs is loaded. */
const commands = new Map<string, (subcommand?: string) => Promise<Command>>(
  Object.entries({
    serve: async () => (await import("./serve.ts")).serveCommand(),
    user: async () => (await import("./user.ts")).userCommand(),
    group: async () => (await import("./group.ts")).groupCommand(),
    access: async (name) => (await import("./access.ts")).accessCommand(name),
    approvals: async () => (await import("./approvals.ts")).approvalsCommand(),
    token: async () => (await import("./token.ts")).tokenCommand(),
    key: async () => (await import("./key.ts")).keyCommand(),
    "hash-password": async () => (await import("./password.ts")).hashPasswordCommand(),
    audit: async () => (await import("./audit.ts")).auditCommand(),
    config: async () => (await import("./config.ts")).configCommand(),
    store: async () => (await import("./store.ts")).storeCommand(),
    upstream: async () => (await import("./upstream.ts")).upstreamCommand(),
    preset: async () => (await import("./preset.ts")).presetCommand(),
    types: async () => (await import("./types.ts")).typesCommand(),
    mcp: async () => (await import("./mcp.ts")).mcpCommand(),
  }),
);

// Commander's own `help` takes no subcommand.
if (process.argv[2] === "help") process.argv = [...process.argv.toSpliced(2, 1), "--help"];
const [, , name = "", subcommand] = process.argv;
const named = commands.get(name);
const loaded = named ? [named(subcommand)] : [...commands.values()].map((load) => load());

const program = withHouseStyle(new Command("gatehouse"))
  .description(
    "Authentication and authorization gateway for PostgreSQL, MySQL, SQLite, and databases that speak JSON over HTTP",
  )
  .version(version)
  .enablePositionalOptions();
for (const command of await Promise.all(loaded)) program.addCommand(command);

// A reader such as `head` that has seen enough does not keep a command from completing its work.
// `serve` and `mcp` decide for themselves.
if (name !== "serve" && name !== "mcp") {
  let isReported = false;
  process.stdout.on("error", ({ code, message }: NodeJS.ErrnoException) => {
    if (isReported || code === "EPIPE") return;
    isReported = true;
    reportFailure(new Error(`cannot write to standard output: ${message}`));
  });
}
process.stderr.on("error", () => {});

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : USAGE;
  else reportFailure(error);
} finally {
  await endCommand();
}
