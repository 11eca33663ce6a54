import { rm } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { styleText } from "node:util";
import { Command, InvalidArgumentError } from "commander";
import type { DestinationStream } from "pino";
import { storeName, storesAccess, withoutPassword } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { LiveConfiguration } from "../config/reload.ts";
import { type Configuration, configurationSchema } from "../config/schema.ts";
import type { StartOptions } from "../gateway/open-gateway.ts";
import type { GatewayFacts, RunningGateway } from "../gateway/start.ts";
import { createLog, type Log, openLogStream, outliveErrors } from "../observe/log.ts";
import { invocation, version } from "../product.ts";
import { workerCount } from "../workers/count.ts";
import { type ConfigurationOptions, loadFor, searchOf } from "./load.ts";
import { withCommonOptions, withHouseStyle } from "./options.ts";
import { FAILURE, print } from "./output.ts";
import { type EndSignal, whenAskedToEnd } from "./shutdown-signal.ts";
import { explainStartFailure, exposureWarnings, requireSocketDirectory } from "./start-checks.ts";

const everywhere = new Map([
  ["0.0.0.0", ["IPv4"]],
  ["[::]", ["IPv4", "IPv6"]],
]);

/** Link-local addresses can be opened only with the name of their link. */
const linkLocal = /^fe[89ab]/i;

/** The URLs that open a listener at `url`, this machine's own first. */
function openable(url: string): string[] {
  const { hostname, port, protocol } = new URL(url);
  const families = everywhere.get(hostname);
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
  const trouble = "does not answer: until it does, every query is refused with 502 or 503";
  return isUpstreamUp === false ? `${place} ${styleText("red", trouble)}` : place;
}

function printFacts(loaded: LoadedConfiguration, facts: GatewayFacts): void {
  const { configuration, serviceDirectory, file } = loaded;
  const { users, administrators, url, publicUrl } = facts;
  const names = administrators.join(", ");
  const [, ...others] = openable(url);
  if (others.length > 0) printFact("Also at", others.join(", "));
  if (publicUrl !== url) printFact("Public URL", publicUrl);
  printFact("Console", facts.consoleUrl ?? 'off: set [console] listen = "127.0.0.1:8081"');
  printFact("Users", `${users}; administrators: ${names || "none"}`);
  const { access_control_file: accessFile } = configuration.auth;
  if (configuration.store.url !== undefined) printFact("Store", storeName(configuration) ?? "");
  if (!storesAccess(configuration)) printFact("Access file", `${accessFile} (edit it live)`);
  printFact("Files", serviceDirectory);
  printFact("Configuration", file ?? "defaults (see gateway.toml.example)");
  printFact("Database", databaseFact(loaded, facts));
}

/**
 * Explains how an administrator signs in: with the password just generated, or by setting a new
 * one.
 */
function printWayIn({ firstPassword, administrators: [name] }: GatewayFacts): void {
  print("");
  if (firstPassword?.kind === "shown") {
    const [admin, secret] = ["admin", firstPassword.password].map((part) =>
      styleText("bold", part),
    );
    print(`  The administrator is ${admin}, and its password, shown only now, is ${secret}`);
  } else if (firstPassword?.kind === "file") {
    print(`  The first password of admin is in ${firstPassword.file}`);
    print("  Log in, change it and delete the file.");
  }
  const remedy = name === undefined ? "user add <name> --admin" : `user password ${name}`;
  print(`  Password lost?  ${invocation} ${remedy}`);
}

/** Prints what a person at a terminal needs to know after a start. */
async function greet(loaded: LoadedConfiguration, facts: GatewayFacts): Promise<void> {
  const { firstPassword, url, administrators } = facts;
  const [address = url] = openable(url);
  print("");
  print(`${styleText("bold", `Gatehouse ${version}`)} listens on ${styleText("cyan", address)}`);
  print("");
  printFacts(loaded, facts);
  printWayIn(facts);
  print("");
  print("Next, in another terminal:");
  print("");
  const password = firstPassword?.kind === "shown" ? firstPassword.password : "<password>";
  const body = JSON.stringify({ username: administrators[0] ?? "admin", password });
  print(`  curl -sS ${address}/login -H 'Content-Type: application/json' -d '${body}'`);
  print("");
  if (firstPassword?.kind === "shown") await rm(firstPassword.file, { force: true });
}

/** Parses a number; the configuration schema checks whether it is a port. */
function readPort(text: string): number {
  if (!/^-?\d+(?:\.\d+)?$/.test(text)) {
    throw new InvalidArgumentError("Allowed: a whole number from 0 to 65535.");
  }
  return Number(text);
}

/** Removes the administrator's password from the environment, so that no child inherits it. */
function takeChosenPassword(): string | undefined {
  const { GATEHOUSE_ADMIN_PASSWORD: password } = process.env;
  delete process.env.GATEHOUSE_ADMIN_PASSWORD;
  return password || undefined;
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
    log.warn({ user: "admin", file }, `${what}; log in, change it and delete the file`);
  }
  const { configuration, serviceDirectory, file } = loaded;
  const { url: database, urls } = configuration.upstream;
  log.info(
    {
      url,
      publicUrl,
      ...(consoleUrl === undefined ? {} : { consoleUrl }),
      ...(workers > 1 ? { workers } : {}),
      version,
      serviceDirectory,
      configuration: file,
      store: storeName(configuration),
      accessFile: storesAccess(configuration) ? undefined : configuration.auth.access_control_file,
      accessVersion,
      users,
      dataDirectory,
      upstream: database === undefined ? urls : withoutPassword(database),
    },
    `listening on ${url}`,
  );
}

interface ServeOptions extends Omit<StartOptions, "engine"> {
  readonly output: DestinationStream;
}

/**
 * Starts the gateway and reports its addresses: as a greeting to a person, otherwise in the log.
 */
async function start(loaded: LoadedConfiguration, options: ServeOptions): Promise<RunningGateway> {
  const workers = workerCount(loaded.configuration);
  const gateway = await startAs(workers, loaded, options).catch((error: unknown) => {
    throw explainStartFailure(error, loaded);
  });
  const { facts } = gateway;
  if (options.hasTerminal) await greet(loaded, facts);
  else logStart(loaded, facts, { log: options.log, workers });
  return gateway;
}

async function startAs(
  count: number,
  loaded: LoadedConfiguration,
  options: ServeOptions,
): Promise<RunningGateway> {
  const { requireFreeAddresses } = await import("../gateway/system-limits.ts");
  await requireFreeAddresses(loaded.configuration);
  requireSocketDirectory(loaded);
  const { openEngine } = await import("../gateway/own-engine.ts");
  await using opened = new AsyncDisposableStack();
  // The engine starts while everything else loads.
  const engine = await openEngine(loaded, options.log, opened);
  const gateway =
    count === 1
      ? await (await import("../gateway/start.ts")).startGateway(loaded, {
          ...options,
          engine,
          loadConsole: () => import("../console/app.ts"),
        })
      : await (await import("../workers/start.ts")).startWorkers(loaded, {
          ...options,
          engine,
          count,
        });
  const kept = opened.move();
  return {
    ...gateway,
    async close() {
      await gateway.close();
      await kept.disposeAsync();
    },
  };
}

/** Watches the configuration file and applies what can change without a restart. */
async function openConfiguration(
  loaded: LoadedConfiguration,
  options: ConfigurationOptions,
  { gateway, log }: { gateway: RunningGateway; log: Log },
): Promise<LiveConfiguration> {
  const { openLiveConfiguration } = await import("../config/reload.ts");
  const { failureOf, reportConfiguration } = await import("../gateway/reload-report.ts");
  const live = openLiveConfiguration(loaded, searchOf(options), {
    apply: (configuration) => gateway.configure(configuration),
    onReload(reload) {
      reportConfiguration(log, reload);
      gateway.note({ configurationFailure: failureOf(reload) });
    },
  });
  // The file may have changed during the start.
  await live.reload();
  return live;
}

/** Waits until the store answers. Until then, a signal ends the process. */
async function waitForStore(
  { configuration }: LoadedConfiguration,
  log: Log,
  asked: Promise<EndSignal>,
): Promise<void> {
  if (configuration.store.url === undefined) return;
  const { openStore } = await import("../store/open.ts");
  const onWait = (reason: string) => log.warn({ reason }, "waiting for the store");
  const store = await Promise.race([openStore(configuration, onWait), asked]);
  if (typeof store === "string") process.exit();
  await store.close();
}

/**
 * Keeps serving for `server.shutdown_delay` while `/readyz` reports that this gateway is shutting
 * down.
 */
async function letOthersNotice(
  { server }: Configuration,
  { gateway, log }: { gateway: RunningGateway; log: Log },
): Promise<void> {
  if (server.shutdown_delay === 0) return;
  gateway.note({ isEnding: true });
  log.info({ seconds: server.shutdown_delay }, "about to end: /readyz is 503 from now on");
  await delay(server.shutdown_delay * 1000);
}

async function run(options: ConfigurationOptions & { wait?: true }): Promise<void> {
  const started = Promise.withResolvers<() => Promise<unknown>>();
  let log: Log | undefined;
  // First of all: a signal during the start waits until the start has completed.
  const asked = whenAskedToEnd(
    () => {
      log?.warn("ended at once: requests in flight are cut");
      process.exit(FAILURE);
    },
    () => void started.promise.then((refresh) => refresh()),
  );
  // A closed terminal accepts no more lines; that is no reason to drop requests in flight.
  process.stdout.on("error", () => {});
  const chosenPassword = takeChosenPassword();
  const loaded = loadFor(options);
  const hasTerminal = process.stdout.isTTY ?? false;
  const output = await openLogStream(hasTerminal);
  log = createLog(output);
  for (const { about, sentence } of exposureWarnings(loaded)) log.warn(about, sentence);
  if (options.wait) await waitForStore(loaded, log, asked);
  // Loaded on demand, like everything that only a gateway needs.
  const { claimDatabases } = await import("../gateway/service-directory.ts");
  const release = await claimDatabases(loaded).catch((error: unknown) => {
    throw explainStartFailure(error, loaded);
  });
  const gateway = await start(loaded, { log, output, chosenPassword, hasTerminal });
  outliveErrors(log);
  const live = await openConfiguration(loaded, options, { gateway, log });
  started.resolve(() => Promise.all([live.reload(), gateway.refresh()]));

  const signal = await asked;
  if (signal === "SIGTERM") await letOthersNotice(loaded.configuration, { gateway, log });
  const hint = hasTerminal && signal === "SIGINT" ? "; Ctrl-C again ends at once" : "";
  log.info({ signal }, `draining: requests in flight finish${hint}`);
  await release();
  await live.close();
  await gateway.close();
  log.info("stopped");
  process.exit();
}

export function serveCommand(): Command {
  const { host, port } = configurationSchema.parse({}).server;
  return withCommonOptions(withHouseStyle(new Command("serve")))
    .description("run the gateway; without a configured upstream, on an embedded database")
    .option("--host <host>", `listen on this address (default: server.host, else ${host})`)
    .option("--port <port>", `listen on this port (default: server.port, else ${port})`, readPort)
    .option("--wait", "wait until the store answers ([store]), instead of failing")
    .action(run);
}
