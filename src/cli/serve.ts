import { rm } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { styleText } from "node:util";
import { type Command, InvalidArgumentError } from "commander";
import type { DestinationStream } from "pino";
import type { StartOptions } from "../app/open-gateway.ts";
import type { GatewayFacts, RunningGateway } from "../app/start.ts";
import { invocation, version } from "../core/base/product.ts";
import { storeName, storesAccess, withoutPassword } from "../core/config/addresses.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { basePathOf, configurationSchema } from "../core/config/schema.ts";
import { createLog, type Log, logUncaughtErrors, openLogStream } from "../core/observe/log.ts";
import { workerCount } from "../features/workers/count.ts";
import { type CommonOptions, defineCommand, loadFor, searchOptions } from "./options.ts";
import { FAILURE, print } from "./output.ts";
import { shutdownSignal } from "./shutdown-signal.ts";
import { explainStartFailure, exposureWarnings } from "./start-checks.ts";

const unspecifiedHosts = new Map([
  ["0.0.0.0", ["IPv4"]],
  ["[::]", ["IPv4", "IPv6"]],
]);

/** A link-local address works only together with the name of its network interface. */
const linkLocal = /^fe[89ab]/i;

/** The URLs at which clients reach a listener; loopback addresses come first. */
function reachableUrls(url: string): string[] {
  const { hostname, port, protocol } = new URL(url);
  const families = unspecifiedHosts.get(hostname);
  if (families === undefined) return [url];
  const found = Object.values(networkInterfaces())
    .flatMap((addresses = []) => addresses)
    .filter(({ family, address }) => families.includes(family) && !linkLocal.test(address))
    .toSorted((one, other) => Number(other.internal) - Number(one.internal));
  const urls = found.map(({ family, address }) => {
    const host = family === "IPv6" ? `[${address}]` : address;
    return `${protocol}//${host}${port === "" ? "" : `:${port}`}`;
  });
  return urls.length === 0 ? [url] : urls;
}

const LABEL_WIDTH = 15;

function printFact(label: string, fact: string): void {
  print(`  ${styleText("dim", label.padEnd(LABEL_WIDTH))}${fact}`);
}

function databaseFact({ configuration }: LoadedConfiguration, facts: GatewayFacts): string {
  const { dataDirectory, isUpstreamUp } = facts;
  if (dataDirectory !== undefined) return `SQLite files in ${dataDirectory}`;
  const { url: one = "", urls = [one] } = configuration.upstream;
  const place = urls.map(withoutPassword).join(", ");
  const problem = "does not respond; until it does, queries are refused with 502 or 503";
  return isUpstreamUp === false ? `${place} ${styleText("red", problem)}` : place;
}

async function greet(loaded: LoadedConfiguration, facts: GatewayFacts): Promise<void> {
  const { configuration, serviceDirectory, file } = loaded;
  const { firstPassword, url, publicUrl, consoleUrl, users, administrators } = facts;
  const [name] = administrators;
  const [address = url, ...others] = reachableUrls(url);
  print("");
  print(`${styleText("bold", `Gatehouse ${version}`)} listens on ${styleText("cyan", address)}`);
  print("");
  if (others.length > 0) printFact("Also at", others.join(", "));
  if (publicUrl !== url) printFact("Public URL", publicUrl);
  printFact("Console", consoleUrl ?? 'off; to enable it, set [console] listen = "127.0.0.1:8081"');
  printFact("Users", `${users}; administrators: ${administrators.join(", ") || "none"}`);
  const { access_control_file: accessFile } = configuration.auth;
  if (configuration.store.url !== undefined) printFact("Store", storeName(configuration) ?? "");
  if (!storesAccess(configuration))
    printFact("Access file", `${accessFile} (edits take effect at once)`);
  printFact("Files", serviceDirectory);
  printFact("Configuration", file ?? "defaults (see gateway.toml.example)");
  printFact("Database", databaseFact(loaded, facts));
  print("");
  // There is no `/login`, and the first password stays in its file.
  if (!configuration.auth.passwords) return;
  let password = "<password>";
  if (firstPassword?.kind === "shown") {
    password = firstPassword.password;
    const [admin, secret] = [styleText("bold", "admin"), styleText("bold", password)];
    print(`  The administrator is ${admin}. The password, shown only once, is ${secret}`);
  } else if (firstPassword?.kind === "file") {
    print(`  The first password of admin is in ${firstPassword.file}`);
    print("  Log in, change it and delete the file.");
  }
  const remedy = name === undefined ? "user add <name> --admin" : `user password ${name}`;
  print(`  Password lost?  ${invocation} ${remedy}`);
  print("");
  print("Next, in another terminal:");
  print("");
  const body = JSON.stringify({ username: name ?? "admin", password });
  print(
    `  curl -sS ${address}${basePathOf(configuration)}/login -H 'Content-Type: application/json' -d '${body}'`,
  );
  print("");
  if (firstPassword?.kind === "shown") await rm(firstPassword.file, { force: true });
}

/** The configuration schema checks the range. */
function readPort(text: string): number {
  if (!/^-?\d+(?:\.\d+)?$/.test(text)) {
    throw new InvalidArgumentError("Allowed: a whole number from 0 to 65535.");
  }
  return Number(text);
}

function logStart(
  loaded: LoadedConfiguration,
  facts: GatewayFacts,
  { log, workers }: { log: Log; workers: number },
): void {
  const { firstPassword, url, publicUrl, consoleUrl, accessVersion, users, dataDirectory } = facts;
  if (firstPassword?.kind === "file") {
    const { file, isFirstStart } = firstPassword;
    const what = isFirstStart
      ? "first start: the administrator's password is in this file"
      : "the administrator's first password is still in this file";
    const remedy = loaded.configuration.auth.passwords
      ? "log in, change it and delete the file"
      : "passwords are off, so delete the file";
    log.warn({ user: "admin", file }, `${what}; ${remedy}`);
  }
  const { configuration, serviceDirectory, file } = loaded;
  const { url: database, urls } = configuration.upstream;
  const { access_control_file: accessFile } = configuration.auth;
  log.info(
    {
      url,
      publicUrl,
      consoleUrl,
      workers: workers > 1 ? workers : undefined,
      version,
      serviceDirectory,
      configuration: file,
      store: storeName(configuration),
      accessFile: storesAccess(configuration) ? undefined : accessFile,
      accessVersion,
      users,
      dataDirectory,
      upstream: database === undefined ? urls : withoutPassword(database),
    },
    `listening on ${url}`,
  );
}

async function start(
  loaded: LoadedConfiguration,
  options: StartOptions & { readonly output: DestinationStream },
): Promise<RunningGateway> {
  const { requireFreeAddresses } = await import("../core/http/system-limits.ts");
  await requireFreeAddresses(loaded.configuration);
  const count = workerCount(loaded.configuration);
  if (count === 1) {
    const { startGateway } = await import("../app/start.ts");
    const loadConsole = () => import("../features/console/app.ts");
    return startGateway(loaded, { ...options, loadConsole });
  }
  const { startWorkers } = await import("../features/workers/start.ts");
  return startWorkers(loaded, { ...options, count });
}

async function run(options: CommonOptions & { wait?: true }): Promise<void> {
  const started = Promise.withResolvers<() => Promise<unknown>>();
  let reportImpatience = () => {};
  // Installed first, so that a signal during the start waits until the start has completed.
  const shutdown = shutdownSignal(
    () => {
      reportImpatience();
      process.exit(FAILURE);
    },
    () => void started.promise.then((refresh) => refresh()),
  );
  // If the terminal closes, requests in flight still complete.
  process.stdout.on("error", () => {});
  const { GATEHOUSE_ADMIN_PASSWORD: chosenPassword } = process.env;
  // Child processes must not inherit it.
  delete process.env.GATEHOUSE_ADMIN_PASSWORD;
  const loaded = loadFor(options);
  const hasTerminal = process.stdout.isTTY ?? false;
  const output = await openLogStream(hasTerminal);
  const log = createLog(output);
  reportImpatience = () => log.warn("stopped at once; requests in flight were cut off");
  for (const { about, sentence } of exposureWarnings(loaded)) log.warn(about, sentence);
  if (options.wait && loaded.configuration.store.url !== undefined) {
    const { openStore } = await import("../features/store/open.ts");
    const onWait = (reason: string) => log.warn({ reason }, "waiting for the store");
    const store = await Promise.race([openStore(loaded.configuration, onWait), shutdown]);
    // Until the store responds, a signal ends the process.
    if (typeof store === "string") process.exit();
    await store.close();
  }
  const { claimDatabases } = await import("../app/service-directory.ts");
  const explained = (error: unknown): never => {
    throw explainStartFailure(error, loaded);
  };
  const release = await claimDatabases(loaded).catch(explained);
  const startOptions = { log, output, chosenPassword: chosenPassword || undefined, hasTerminal };
  const gateway = await start(loaded, startOptions).catch(explained);
  if (hasTerminal) await greet(loaded, gateway.facts);
  else logStart(loaded, gateway.facts, { log, workers: workerCount(loaded.configuration) });
  logUncaughtErrors(log);
  const { openLiveConfiguration } = await import("../core/config/reload.ts");
  const { reloadFailure, reportConfiguration } = await import("../core/http/reloads.ts");
  const live = openLiveConfiguration(loaded, searchOptions(options), {
    apply: (configuration) => gateway.configure(configuration),
    onReload(reload) {
      reportConfiguration(log, reload);
      gateway.note({ configurationFailure: reloadFailure(reload) });
    },
  });
  // The file may have changed during the start.
  await live.reload();
  started.resolve(() => Promise.all([live.reload(), gateway.refresh()]));

  const signal = await shutdown;
  const { shutdown_delay: seconds } = loaded.configuration.server;
  if (signal === "SIGTERM" && seconds > 0) {
    gateway.note({ isEnding: true });
    log.info({ seconds }, "shutting down: /readyz responds with 503 from now on");
    await delay(seconds * 1000);
  }
  const hint = hasTerminal && signal === "SIGINT" ? "; press Ctrl-C again to stop at once" : "";
  log.info({ signal }, `draining: finishing requests in flight${hint}`);
  release();
  await live.close();
  await gateway.close();
  log.info("stopped");
  process.exit();
}

export function serveCommand(): Command {
  const { host, port } = configurationSchema.parse({}).server;
  const help = `
serve           run the gateway; without a configured upstream, with an embedded database
  --host <host>  listen on this address (default: server.host, else ${host})
  --port <port>  listen on this port (default: server.port, else ${port})
  --wait        wait until the [store] responds instead of failing
`;
  return defineCommand(help, { serve: run }, { port: { parse: readPort } });
}
