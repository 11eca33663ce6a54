import { styleText } from "node:util";
import { Command, InvalidArgumentError } from "commander";
import { isAdministrator } from "../access/snapshot.ts";
import { isLoopback } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { type RunningGateway, startGateway } from "../gateway/start.ts";
import { createLog, type Log } from "../observe/log.ts";
import { version } from "../version.ts";
import { type CommonOptions, loadFor, withCommonOptions } from "./files.ts";
import { print } from "./outcome.ts";

interface ServeOptions extends CommonOptions {
  readonly host?: string;
  readonly port?: number;
}

function readPort(text: string): number {
  const port = Number(text);
  if (!/^\d{1,5}$/.test(text) || port > 65_535) {
    throw new InvalidArgumentError("allowed: a whole number from 0 to 65535");
  }
  return port;
}

/** The administrator's password is taken out of the environment, so that no child inherits it. */
function takeChosenPassword(): string | undefined {
  const { GATEHOUSE_ADMIN_PASSWORD: password } = process.env;
  delete process.env.GATEHOUSE_ADMIN_PASSWORD;
  return password || undefined;
}

function warn({ configuration: { auth, server } }: LoadedConfiguration, log: Log): void {
  if (!isLoopback(server.host)) {
    log.warn(
      { host: server.host },
      "other machines can reach this address: put TLS in front of it",
    );
  }
  if (!auth.enabled) {
    log.warn("AUTHENTICATION IS OFF: every caller may do everything (auth.enabled = false)");
  }
}

function administrators({ access: { snapshot } }: RunningGateway): string[] {
  return [...snapshot.users.keys()].filter((name) => isAdministrator(snapshot, name)).slice(0, 5);
}

/** What a person wants to know after a start. */
function greet(loaded: LoadedConfiguration, gateway: RunningGateway): void {
  const { configuration, serviceDirectory, file } = loaded;
  const label = (text: string) => styleText("dim", text.padEnd(15));
  const { firstPassword, url } = gateway;
  print("");
  print(`${styleText("bold", `Gatehouse ${version}`)} listens on ${styleText("cyan", url)}`);
  print("");
  print(
    `  ${label("Users")}${gateway.access.snapshot.users.size}; administrators: ${administrators(gateway).join(", ") || "none"}`,
  );
  print(`  ${label("Access file")}${configuration.auth.access_control_file} (edit it live)`);
  print(`  ${label("Files")}${serviceDirectory}`);
  print(`  ${label("Configuration")}${file ?? "defaults (see gateway.toml.example)"}`);
  print(
    `  ${label("Database")}${gateway.dataDirectory ? `SQLite files in ${gateway.dataDirectory}` : configuration.upstream.url}`,
  );
  const password = firstPassword?.kind === "shown" ? firstPassword.password : "<password>";
  if (firstPassword?.kind === "shown") {
    print("");
    print(
      `  The administrator is ${styleText("bold", "admin")}, and its password, shown only now, is ${styleText("bold", password)}`,
    );
  }
  print("");
  print("Next, in another terminal:");
  print("");
  const name = administrators(gateway)[0] ?? "admin";
  const body = JSON.stringify({ username: name, password });
  print(`  curl -s ${url}/login -H 'Content-Type: application/json' -d '${body}'`);
  print("");
}

function logStart(loaded: LoadedConfiguration, gateway: RunningGateway, log: Log): void {
  const { firstPassword, url, access, dataDirectory } = gateway;
  if (firstPassword?.kind === "file") {
    log.warn(
      { user: "admin", file: firstPassword.file },
      "first start: the administrator's password is in this file; log in, change it and delete the file",
    );
  }
  const { configuration, serviceDirectory, file } = loaded;
  log.info(
    {
      url,
      publicUrl: gateway.publicUrl,
      version,
      serviceDirectory,
      configuration: file,
      accessFile: configuration.auth.access_control_file,
      accessVersion: access.snapshot.version,
      users: access.snapshot.users.size,
      dataDirectory,
      upstream: configuration.upstream.url,
    },
    `listening on ${url}`,
  );
}

async function run(options: ServeOptions): Promise<void> {
  const chosenPassword = takeChosenPassword();
  const loaded = loadFor(options);
  const hasTerminal = process.stdout.isTTY ?? false;
  const log = createLog({ isTerminal: hasTerminal });
  warn(loaded, log);
  const gateway = await startGateway(loaded, { log, chosenPassword, hasTerminal });
  if (hasTerminal) greet(loaded, gateway);
  logStart(loaded, gateway, log);

  process.on("SIGHUP", () => void gateway.refresh());
  await new Promise<void>((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.on(signal, () => {
        log.info({ signal }, "draining: requests in flight finish");
        resolve();
      });
    }
  });
  await gateway.close();
  log.info("stopped");
  process.exit();
}

/** `gatehouse serve`: the gateway. */
export function serveCommand(): Command {
  return withCommonOptions(new Command("serve"))
    .description("run the gateway; without a configured upstream, on an embedded database")
    .option("--host <host>", "listen on this address, in the place of server.host")
    .option("--port <port>", "listen on this port, in the place of server.port", readPort)
    .action(run);
}
