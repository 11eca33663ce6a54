import { once } from "node:events";
import { createServer } from "node:net";
import { parseListenAddress } from "../config/addresses.ts";
import type { Configuration } from "../config/schema.ts";

/**
 * Makes sure that nobody listens on a port. Workers share theirs with whoever asks for sharing: a
 * second gateway on the same port would not be told that it is taken.
 *
 * @throws the system's error if somebody does, or nobody may
 */
export async function requireFree(host: string, port: number): Promise<void> {
  const probe = createServer();
  probe.listen({ host, port });
  await once(probe, "listening");
  const closed = once(probe, "close");
  probe.close();
  await closed;
}

/**
 * Makes sure before all else that a start can listen where it is told to, so that no engine is
 * started in vain, and a first password is made only where it will be shown.
 *
 * @throws the system's error if it cannot
 */
export async function requireFreeAddresses(configuration: Configuration): Promise<void> {
  const { server, metrics } = configuration;
  await requireFree(server.host, server.port);
  const exposed = metrics.listen === undefined ? undefined : parseListenAddress(metrics.listen);
  if (exposed !== undefined) await requireFree(exposed.host, exposed.port);
}
