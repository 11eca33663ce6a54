import { type Command, Help } from "commander";
import { invocation } from "../product.ts";
import { failureLabel } from "./output.ts";

const plainHelp = new Help();

/** The usage line, beginning with how the program is called here. */
function usageOf(command: Command): string {
  return plainHelp.commandUsage(command).replace(/^gatehouse\b/, invocation);
}

/**
 * Gives a command, and those that are made under it later, one way to speak: errors begin as all
 * others do and end with a hint, and the usage line can be typed as it stands.
 */
export function withHouseStyle(command: Command): Command {
  return command
    .showHelpAfterError("(add --help for what is allowed)")
    .configureHelp({ commandUsage: usageOf })
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error:/, failureLabel())),
    });
}
