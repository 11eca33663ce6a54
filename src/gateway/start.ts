import path from "node:path";
import { type LiveAccess, openAccessFile } from "../access/live.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Configuration } from "../config/schema.ts";
import { configuredCosts } from "../identity/costs.ts";
import { openKeyRing } from "../identity/key-ring.ts";
import type { LoginContext } from "../identity/login.ts";
import { createLoginThrottle } from "../identity/throttle.ts";
import { createTokenAuthority, type TokenAuthority } from "../identity/token.ts";
import { createAudit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import { createMetrics } from "../observe/metrics.ts";
import { createGrammar } from "../query/grammar.ts";
import { type EmbeddedEngine, startEmbeddedEngine } from "../upstream/embedded-engine.ts";
import { createQueryClient } from "../upstream/query-client.ts";
import { createStreamProxy } from "../upstream/stream-proxy.ts";
import { parseTarget, type UpstreamTarget } from "../upstream/target.ts";
import { BodyBudget } from "./body.ts";
import { type FirstPassword, prepareServiceDirectory } from "./first-start.ts";
import type { Gateway } from "./gateway.ts";
import { reportReload, warnOfNamesWithoutRecord } from "./reload-report.ts";
import { openFront } from "./server.ts";

/** A gateway that listens. */
export interface RunningGateway {
  /** How clients reach it. */
  readonly url: string;
  readonly access: LiveAccess;
  /** Set if this was the first start. */
  readonly firstPassword: FirstPassword | undefined;
  /** Where the embedded engine keeps its databases; undefined if the upstream is another's. */
  readonly dataDirectory: string | undefined;
  /** Reads the access file again and opens the audit's file again. */
  refresh(): Promise<void>;
  /** Lets requests in flight finish, then ends all that was started. */
  close(): Promise<void>;
}

export interface StartOptions {
  readonly log: Log;
  /** `$GATEHOUSE_ADMIN_PASSWORD`. */
  readonly chosenPassword: string | undefined;
  readonly hasTerminal: boolean;
}

function loginContext(
  configuration: Configuration,
  access: LiveAccess,
  tokens: TokenAuthority,
  log: Log,
): LoginContext {
  const { auth } = configuration;
  return {
    snapshot: () => access.snapshot,
    accessFile: auth.access_control_file,
    tokens,
    throttle: createLoginThrottle({
      perUserAndAddress: auth.max_failures_per_user_and_address,
      perAddress: auth.max_failures_per_address,
      window: auth.failure_window,
    }),
    costs: configuredCosts(configuration),
    tokenLifetime: auth.token_expiration,
    onUpgradeFailed: (error) => {
      const reason = error instanceof Error ? error.message : "unknown";
      log.warn({ reason }, "a password hash could not be upgraded to the configured costs");
    },
  };
}

/** The configured upstream, or an engine of the gateway's own. */
async function openUpstream(
  { upstream }: Configuration,
  dataDirectory: string,
  log: Log,
): Promise<{ target: UpstreamTarget; engine: EmbeddedEngine | undefined }> {
  if (upstream.url !== undefined) return { target: parseTarget(upstream.url), engine: undefined };
  const engine = await startEmbeddedEngine({ dataDirectory, log });
  return { target: engine.target, engine };
}

function displayHost(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

/** What has been opened so far, to be closed in the opposite order. */
class Closers {
  readonly #closers: (() => Promise<unknown> | unknown)[] = [];

  add(close: () => Promise<unknown> | unknown): void {
    this.#closers.unshift(close);
  }

  async run(): Promise<void> {
    for (const close of this.#closers.splice(0)) await close();
  }
}

/**
 * Starts the gateway: files, keys, upstream, then the front, so that the first request that is
 * taken can be answered. What was opened is closed again if a later step fails.
 */
export async function startGateway(
  loaded: LoadedConfiguration,
  options: StartOptions,
): Promise<RunningGateway> {
  const closers = new Closers();
  try {
    return await open(loaded, options, closers);
  } catch (error) {
    await closers.run();
    throw error;
  }
}

async function open(
  { configuration, serviceDirectory }: LoadedConfiguration,
  { log, chosenPassword, hasTerminal }: StartOptions,
  closers: Closers,
): Promise<RunningGateway> {
  const { auth, server, upstream } = configuration;
  const keysDirectory = path.join(serviceDirectory, "keys");
  const dataDirectory = path.join(serviceDirectory, "data");
  const checkRead = { checkRead: auth.check_permissions };

  const audit = createAudit(configuration.audit.file, log);
  closers.add(() => audit.close());
  const metrics = createMetrics();
  const firstPassword = await prepareServiceDirectory({
    serviceDirectory,
    accessFile: auth.access_control_file,
    keysDirectory,
    costs: configuredCosts(configuration),
    chosenPassword,
    hasTerminal,
  });

  const access = await openAccessFile(auth.access_control_file, {
    ...checkRead,
    onReload: (event) => reportReload(log, audit, metrics, event),
  });
  closers.add(() => access.close());
  metrics.reloaded(access.snapshot.version);
  warnOfNamesWithoutRecord(log, access.snapshot);

  const keys = await openKeyRing(keysDirectory, auth.signing_algorithm, checkRead);
  const tokens = createTokenAuthority(() => keys, auth.issuer);
  const { target, engine } = await openUpstream(configuration, dataDirectory, log);
  if (engine !== undefined) closers.add(() => engine.close());

  const responseTimeout = upstream.response_timeout * 1000;
  const queries = createQueryClient({
    target,
    connections: upstream.connections,
    connectTimeout: upstream.connect_timeout * 1000,
    responseTimeout,
  });
  closers.add(() => queries.close());
  const streams = createStreamProxy({ target, responseTimeout });
  closers.add(() => streams.close());

  // Known once a free port was taken; no request comes before that.
  let publicUrl = server.public_url;
  const gateway: Gateway = {
    configuration,
    get publicUrl() {
      return publicUrl;
    },
    access,
    keys,
    tokens,
    login: loginContext(configuration, access, tokens, log),
    grammar: createGrammar({
      extraFields: [...configuration.query.extra_fields],
      operations: { ...configuration.query.operations },
    }),
    budget: new BodyBudget(server.max_buffered_bytes),
    target,
    headers: {
      forwardHeaders: new Set(upstream.forward_headers.map((name) => name.toLowerCase())),
      forwardAuthorization: upstream.forward_authorization,
      authorization: upstream.authorization,
    },
    queries,
    streams,
    log,
    audit,
    metrics,
  };
  const front = await openFront(gateway);
  publicUrl ||= `http://${displayHost(server.host)}:${front.port}`;
  closers.add(() => front.drain(server.shutdown_grace * 1000));
  if (configuration.metrics.listen !== undefined) {
    const listener = await metrics.listen(configuration.metrics.listen);
    closers.add(() => listener.close());
  }
  return {
    url: publicUrl,
    access,
    firstPassword,
    dataDirectory: engine === undefined ? undefined : dataDirectory,
    async refresh() {
      audit.reopen();
      await access.reload();
    },
    close: () => closers.run(),
  };
}
