import { once } from "node:events";
import { createServer } from "node:net";

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
