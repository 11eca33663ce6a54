/** What measurements need, until a stack is disposed. */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { type PostgresServer, startPostgres } from "../../test/engine/postgres/server.ts";

/** A directory that only this user may read. */
export function openDirectory(opened: AsyncDisposableStack): string {
  const directory = mkdtempSync(path.join(tmpdir(), "gatehouse-bench-"));
  // A gateway that stops may still write its compile cache.
  opened.defer(() => rmSync(directory, { recursive: true, force: true, maxRetries: 5 }));
  return directory;
}

/** The stack as servers of tests expect it. */
export function scopeOf(opened: AsyncDisposableStack) {
  return { teardown: (work: () => unknown) => opened.defer(async () => void (await work())) };
}

export function openPostgres(opened: AsyncDisposableStack): Promise<PostgresServer> {
  return startPostgres(scopeOf(opened));
}

/** A database that answers each query at once. @returns its port */
export async function openUpstream(opened: AsyncDisposableStack): Promise<number> {
  const upstream = createServer((request, response) => {
    request.resume();
    response.end('{"status":"success","data":[]}');
  }).listen(0, "127.0.0.1");
  opened.defer(() => {
    upstream.closeAllConnections();
    upstream.close();
  });
  await once(upstream, "listening");
  const address = upstream.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
