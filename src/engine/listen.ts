import { once } from "node:events";
import { existsSync, lstatSync, unlinkSync } from "node:fs";
import type { Server } from "node:http";
import { connect } from "node:net";
import { dirname, resolve } from "node:path";
import type { Logger } from "pino";

/** How often a socket is looked for, in milliseconds. */
const LOOK_INTERVAL_MS = 1000;

/** Where the engine listens. */
export type Endpoint =
  | { readonly kind: "socket"; readonly path: string }
  | { readonly kind: "port"; readonly host: string; readonly port: number };

/**
 * Reads `unix:/path` or a loopback `host:port`.
 *
 * @throws Error for anything else: the engine trusts whoever reaches it, so it is never
 * offered to a network
 */
export function parseEndpoint(listen: string): Endpoint {
  const path = /^unix:(.+)$/.exec(listen)?.[1];
  if (path !== undefined) return { kind: "socket", path: resolve(path) };
  const [, host, port] = /^(127\.0\.0\.1|localhost|\[::1\]):(\d{1,5})$/.exec(listen) ?? [];
  if (host !== undefined && Number(port) <= 65535) {
    return { kind: "port", host, port: Number(port) };
  }
  throw new Error(
    `The engine cannot listen on "${listen}": it takes unix:/path or a loopback address such as 127.0.0.1:9090.`,
  );
}

/**
 * Starts listening and returns the address as a client writes it: `unix:/path`, or an `http:`
 * URL with the port that was taken. A socket is for its owner alone (mode 0600).
 *
 * @throws Error if the address is taken or cannot be used
 */
export async function listen(server: Server, endpoint: Endpoint): Promise<string> {
  if (endpoint.kind === "port") {
    server.listen(endpoint.port, endpoint.host.replace(/[[\]]/g, ""));
    await once(server, "listening");
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : endpoint.port;
    return `http://${endpoint.host}:${port}`;
  }
  requireDirectoryOf(endpoint.path);
  await removeStaleSocket(endpoint.path);
  listenOwnerOnly(server, endpoint.path);
  await once(server, "listening");
  return `unix:${endpoint.path}`;
}

/**
 * Listens anew whenever the socket's file is gone, since nobody finds the engine without it.
 * Requests under way are not concerned. A directory that was moved away is not made anew: the
 * engine listens once it is back. Returns what ends that.
 */
export function keepListening(server: Server, endpoint: Endpoint, log: Logger): () => void {
  if (endpoint.kind === "port") return () => {};
  const { path } = endpoint;
  let isBusy = false;
  let isTold = false;
  async function look(): Promise<void> {
    if (isBusy || existsSync(path)) return;
    isBusy = true;
    try {
      server.close();
      listenOwnerOnly(server, path);
      await once(server, "listening");
      log.warn({ path }, "the engine's socket was gone: it listens anew");
      isTold = false;
    } catch (error) {
      if (!isTold) log.error({ err: error, path }, "the engine's socket is gone");
      isTold = true;
    } finally {
      isBusy = false;
    }
  }
  const timer = setInterval(() => void look(), LOOK_INTERVAL_MS);
  return () => clearInterval(timer);
}

/** What the system says without one sounds as if it were forbidden. */
function requireDirectoryOf(path: string): void {
  const directory = dirname(path);
  if (existsSync(directory)) return;
  throw new Error(`There is no directory ${directory} for the socket: make it with mkdir -m 700.`);
}

/** The socket is bound before `listen` returns, so the narrow umask covers nothing else. */
function listenOwnerOnly(server: Server, path: string): void {
  const umask = process.umask(0o177);
  try {
    server.listen(path);
  } finally {
    process.umask(umask);
  }
}

/** A killed engine leaves its socket behind; it is removed only if nobody answers on it. */
async function removeStaleSocket(path: string): Promise<void> {
  const status = lstatSync(path, { throwIfNoEntry: false });
  if (status === undefined) return;
  if (!status.isSocket()) throw new Error(`${path} exists and is no socket.`);
  if (await answers(path)) throw new Error(`Another process listens on ${path}.`);
  unlinkSync(path);
}

async function answers(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, "connect");
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ECONNREFUSED") return false;
    throw error;
  } finally {
    socket.destroy();
  }
}
