/** Runs each command that its parent sends, and answers with its output. */
import { Readable } from "node:stream";
import { inspect } from "node:util";

interface SentCommand {
  readonly flags: readonly string[];
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  readonly input: string;
}

const [node = "", self = ""] = process.argv;
let printed = { stdout: "", stderr: "" };
for (const name of ["stdout", "stderr"] as const) {
  // Each command adds its own listeners.
  process[name].setMaxListeners(0);
  process[name].write = (chunk: Uint8Array | string) => {
    printed[name] += typeof chunk === "string" ? chunk : Buffer.from(chunk).toString();
    return true;
  };
}

let count = 0;
process.on("disconnect", () => process.exit());
process.on("message", async ({ flags, cwd, env, input }: SentCommand) => {
  printed = { stdout: "", stderr: "" };
  process.chdir(cwd);
  process.env = env;
  process.argv = [node, self, ...flags];
  process.exitCode = 0;
  const stdin = Readable.from(input === "" ? [] : [Buffer.from(input)]);
  Object.defineProperty(process, "stdin", { value: stdin, configurable: true });
  // The query string makes the module run again; its imports stay loaded.
  await import(`../../src/cli/cli.ts?run=${count++}`).catch((error: unknown) => {
    process.exitCode = 1;
    printed.stderr += inspect(error);
  });
  process.send?.({ code: process.exitCode, ...printed });
});
