import type { Command } from "commander";
import { findGateway, readToken, report, tokenRemedy, warnIfReadable } from "./client.ts";
import { type CommonOptions, defineCommand } from "./options.ts";
import { shutdownSignal } from "./shutdown-signal.ts";

async function run(options: CommonOptions): Promise<void> {
  const token = readToken();
  const url = findGateway(options);
  warnIfReadable(url);
  // Loaded on demand, since the protocol library would slow down every other command.
  const { isTokenRefused, removeResponseTimeouts, toRpcError, StdioBridge } = await import(
    "../features/mcp/stdio.ts"
  );
  removeResponseTimeouts();
  const bridge = new StdioBridge({
    url,
    token,
    write: (line) => process.stdout.write(`${line}\n`),
    onError(error) {
      const { message } = toRpcError(error, url);
      if (!isTokenRefused(error)) return report(message);
      report(`${url.origin} rejected the token (${message}); ${tokenRemedy} and start again`);
    },
  });
  await bridge.start();
  // The client has gone if standard input ends or standard output fails.
  const outputFails = new Promise((resolve) => process.stdout.on("error", resolve));
  const signal = shutdownSignal(() => process.exit());
  await Promise.race([bridge.forwardAll(process.stdin), outputFails, signal]);
  await bridge.close();
  process.exit();
}

const help = `
mcp             connect an MCP client that speaks stdio to a gateway
  --stdio       read messages from standard input and write responses to standard output (required)
  --url <url>   the gateway (default: $GATEHOUSE_URL, else the address in the configuration)
`;

export function mcpCommand(): Command {
  const command = defineCommand(help, { mcp: run });
  return command.addHelpText("after", "\nThe token is read from $GATEHOUSE_TOKEN.");
}
