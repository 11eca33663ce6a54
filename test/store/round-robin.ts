import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { Test } from "tap";
import { TestGateway } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { makeStore, type StoreSettings, type TestStore } from "./kit.ts";

interface Replicated {
  readonly store: TestStore;
  readonly replicas: readonly TestGateway[];
  /** Their public URL, which passes each request to the next replica. */
  readonly balancer: TestGateway;
}

function passOn(target: string, incoming: IncomingMessage, response: ServerResponse): void {
  const { method, headers, url } = incoming;
  const forwarded = request(`${target}${url}`, { method: method ?? "GET", headers }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  forwarded.on("error", () => response.destroy());
  response.on("close", () => forwarded.destroy());
  incoming.pipe(forwarded);
}

/** @param urlsOf the URLs by which the replicas reach the store; by default three direct ones */
export async function openReplicated(
  t: Test,
  settings: StoreSettings & { server: TestStore["server"]; more?: string },
  urlsOf: (store: TestStore) => Promise<(string | undefined)[]> = async () => [
    undefined,
    undefined,
    undefined,
  ],
): Promise<Replicated> {
  const replicas: TestGateway[] = [];
  let next = 0;
  const server = createServer((incoming, response) => {
    const replica = replicas[next++ % replicas.length];
    passOn(replica?.url ?? "", incoming, response);
  });
  const url = `http://127.0.0.1:${await listening(t, server)}`;
  const store = await makeStore(t, settings, settings.server);
  const more = `[server]\npublic_url = "${url}"\n${settings.more ?? ""}`;
  const start = (own = store.url) => store.replica(own, store.makeHome(), more);
  replicas.push(...(await Promise.all((await urlsOf(store)).map(start))));
  const [first] = replicas;
  if (first === undefined) throw new Error("no replicas");
  return { store, replicas, balancer: new TestGateway(first.home, first.service, url) };
}
