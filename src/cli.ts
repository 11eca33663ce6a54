import { Command, CommanderError } from "commander";
import { accessCommand } from "./commands/access.ts";
import { approvalsCommand } from "./commands/approvals.ts";
import { auditCommand } from "./commands/audit.ts";
import { configCommand } from "./commands/config.ts";
import { engineCommand } from "./commands/engine.ts";
import { keyCommand } from "./commands/key.ts";
import { mcpCommand } from "./commands/mcp.ts";
import { withHouseStyle } from "./commands/options.ts";
import { reportFailure, USAGE } from "./commands/output.ts";
import { hashPasswordCommand } from "./commands/password.ts";
import { serveCommand } from "./commands/serve.ts";
import { storeCommand } from "./commands/store-commands.ts";
import { tokenCommand } from "./commands/token.ts";
import { userCommand } from "./commands/user.ts";
import { version } from "./product.ts";

/** The `gatehouse` command: names the commands, nothing more. */
const program = withHouseStyle(new Command("gatehouse"))
  .description(
    "An authentication and authorization gateway for databases that speak JSON over HTTP",
  )
  .version(version)
  .enablePositionalOptions()
  .addCommand(serveCommand())
  .addCommand(userCommand())
  .addCommand(accessCommand())
  .addCommand(approvalsCommand())
  .addCommand(tokenCommand())
  .addCommand(keyCommand())
  .addCommand(hashPasswordCommand())
  .addCommand(auditCommand())
  .addCommand(configCommand())
  .addCommand(storeCommand())
  .addCommand(engineCommand())
  .addCommand(mcpCommand());

function throwOnUsageError(command: Command): void {
  command.exitOverride();
  for (const child of command.commands) throwOnUsageError(child);
}

throwOnUsageError(program);
try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : USAGE;
  else reportFailure(error);
}
