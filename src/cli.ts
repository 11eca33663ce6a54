import { Command, CommanderError } from "commander";
import { withHouseStyle } from "./commands/options.ts";
import { FAILURE, reportFailure, USAGE } from "./commands/output.ts";
import { version } from "./product.ts";

/** The commands in the order of the help. Only the command that runs is loaded. */
const commands = new Map<string, (subcommand?: string) => Promise<Command>>(
  Object.entries({
    serve: async () => (await import("./commands/serve.ts")).serveCommand(),
    user: async () => (await import("./commands/user.ts")).userCommand(),
    group: async () => (await import("./commands/group.ts")).groupCommand(),
    access: async (name) => (await import("./commands/access.ts")).accessCommand(name),
    approvals: async () => (await import("./commands/approvals.ts")).approvalsCommand(),
    token: async () => (await import("./commands/token.ts")).tokenCommand(),
    key: async () => (await import("./commands/key.ts")).keyCommand(),
    "hash-password": async () => (await import("./commands/password.ts")).hashPasswordCommand(),
    audit: async () => (await import("./commands/audit.ts")).auditCommand(),
    config: async () => (await import("./commands/config.ts")).configCommand(),
    store: async () => (await import("./commands/store.ts")).storeCommand(),
    upstream: async () => (await import("./commands/upstream.ts")).upstreamCommand(),
    types: async () => (await import("./commands/types.ts")).typesCommand(),
    mcp: async () => (await import("./commands/mcp.ts")).mcpCommand(),
  }),
);

const [, , name = "", subcommand] = process.argv;
const named = commands.get(name);
const loaded = named ? [named(subcommand)] : [...commands.values()].map((load) => load());

const program = withHouseStyle(new Command("gatehouse"))
  .description("Authentication and authorization gateway for databases that speak JSON over HTTP")
  .version(version)
  .enablePositionalOptions();
for (const command of await Promise.all(loaded)) program.addCommand(command);

// A reader such as `head` that has seen enough. `serve` and `mcp` decide for themselves.
if (name !== "serve" && name !== "mcp") {
  process.stdout.on("error", ({ code }: NodeJS.ErrnoException) => {
    process.exit(code === "EPIPE" ? process.exitCode : FAILURE);
  });
}

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : USAGE;
  else reportFailure(error);
}
