import { Command } from "commander";
import { isLoopback } from "../config/addresses.ts";
import { invocation } from "../product.ts";
import { loadFor } from "./load.ts";
import { type CommonOptions, withCommonOptions, withHouseStyle } from "./options.ts";
import { failureLabel, UsageError } from "./output.ts";
import { whenAskedToEnd } from "./shutdown-signal.ts";

/** Replacements for addresses that no client can connect to. */
const reachable = new Map([
  ["0.0.0.0", "127.0.0.1"],
  ["::", "::1"],
]);

function say(text: string): void {
  process.stderr.write(`${failureLabel()} ${text}\n`);
}

function readToken(): string {
  const token = process.env.GATEHOUSE_TOKEN?.trim();
  if (!token) {
    const remedy = `\`${invocation} token issue <username>\` prints one`;
    throw new UsageError(`$GATEHOUSE_TOKEN is not set: put a token into it; ${remedy}`);
  }
  // The message omits the text, since it may still be a secret.
  if (/^[A-Za-z0-9._~+/-]+=*$/.test(token)) return token;
  throw new UsageError("$GATEHOUSE_TOKEN holds no bearer token");
}

/** @throws UsageError unless this is a gateway's URL or that of its `/mcp` */
function readUrl(text: string, source: string): URL {
  const url = URL.parse(text);
  const isGateway =
    url !== null && /^https?:$/.test(url.protocol) && /^\/(?:mcp)?$/.test(url.pathname);
  if (isGateway && url.username + url.password + url.search + url.hash === "") {
    return new URL("/mcp", url);
  }
  throw new UsageError(
    `${source} is no URL of a gateway; allowed: such as https://gate.example.com`,
  );
}

function findUrl(options: CommonOptions): URL {
  if (options.url !== undefined) return readUrl(options.url, "--url");
  if (process.env.GATEHOUSE_URL) return readUrl(process.env.GATEHOUSE_URL, "$GATEHOUSE_URL");
  const { host, port, tls, public_url: publicUrl } = loadFor(options).configuration.server;
  if (publicUrl !== "") return readUrl(publicUrl, "server.public_url");
  if (port === 0) throw new UsageError("server.port is 0: name the gateway with --url");
  const name = reachable.get(host) ?? host;
  const scheme = tls.certificate === undefined ? "http" : "https";
  return readUrl(`${scheme}://${name.includes(":") ? `[${name}]` : name}:${port}`, "server.host");
}

async function run(options: CommonOptions): Promise<void> {
  const token = readToken();
  const url = findUrl(options);
  if (url.protocol !== "https:" && !isLoopback(url.hostname)) {
    say(`the token goes to ${url.origin} without encryption: use https`);
  }
  // Loaded on demand, since the protocol library would slow down every other command.
  const { isTokenRefused, removeResponseTimeouts, rpcErrorOf, StdioBridge } = await import(
    "../mcp/stdio.ts"
  );
  removeResponseTimeouts();
  const remedy = `put one that \`${invocation} token issue <username>\` prints into $GATEHOUSE_TOKEN`;
  const bridge = new StdioBridge({
    url,
    token,
    write: (line) => process.stdout.write(`${line}\n`),
    onError(error) {
      const { message } = rpcErrorOf(error, url);
      if (!isTokenRefused(error)) return say(message);
      say(`${url.origin} does not accept the token (${message}): ${remedy}, and start again`);
    },
  });
  await bridge.start();
  // The client has gone if standard input ends or standard output fails.
  const isUnheard = new Promise((resolve) => process.stdout.on("error", resolve));
  const isOver = [
    bridge.forwardAll(process.stdin),
    isUnheard,
    whenAskedToEnd(() => process.exit()),
  ];
  await Promise.race(isOver);
  await bridge.close();
  process.exit();
}

export function mcpCommand(): Command {
  return withCommonOptions(withHouseStyle(new Command("mcp")))
    .description("carry MCP between standard input and output and a gateway")
    .requiredOption(
      "--stdio",
      "read messages from standard input, write answers to standard output",
    )
    .option(
      "--url <url>",
      "the gateway (default: $GATEHOUSE_URL, else as the configuration has it)",
    )
    .action(run)
    .addHelpText("after", "\nThe token is taken from $GATEHOUSE_TOKEN.");
}
