import { writeFileSync } from "node:fs";
import path from "node:path";
import { startGateway, TestGateway } from "../../kit/gateway.ts";
import { startWithRetries, storeConfig, type Teardown, type TestStore } from "../kit.ts";
import type { Host } from "./network.ts";

/** Seconds. A lease lasts five seconds longer. */
export const MAX_STALENESS = 2;

/** A clock that is ahead by the milliseconds in a file, which it reads again at SIGUSR2. */
const clock = (file: string) => `
import { readFileSync } from "node:fs";
const { now } = Date;
let ahead = 0;
Date.now = () => now() + ahead;
const read = () => (ahead = Number(readFileSync(${JSON.stringify(file)}, "utf8")));
read();
process.on("SIGUSR2", read);
`;

/** A replica on its own host, with a clock that can be set. */
export class FaultyReplica {
  readonly #t: Teardown;
  readonly #store: TestStore;
  readonly #upstream: string;
  readonly host: Host;
  /** As in the `X-Replica` header of the load balancer. */
  readonly name: string;
  readonly #home: string;
  #gateway: TestGateway | undefined;

  constructor(t: Teardown, name: string, host: Host, store: TestStore, upstream: string) {
    this.#t = t;
    this.name = name;
    this.host = host;
    this.#store = store;
    this.#upstream = upstream;
    this.#home = store.makeHome();
    this.#writeClock(0);
  }

  start(): Promise<void> {
    return startWithRetries(() => this.#start());
  }

  async #start(): Promise<void> {
    const { listen, through, storeAddress, address } = this.host;
    const { url, server } = this.#store;
    const storeUrl = url.replace(`127.0.0.1:${server.port}`, storeAddress);
    const config = [
      storeConfig(storeUrl, { maxStaleness: MAX_STALENESS }),
      `[server]\nhost = "${listen.host}"\npublic_url = "http://gatehouse.test"`,
    ].join("\n");
    const preload = `data:text/javascript;base64,${btoa(clock(this.#clockFile))}`;
    const { home, service } = await startGateway(this.#t, {
      home: this.#home,
      config,
      upstream: this.#upstream,
      port: listen.port,
      through,
      auth: "max_failures_per_user_and_address = 1000000\nmax_failures_per_address = 1000000",
      env: { NODE_OPTIONS: `--import=${preload}` },
      flags: ["--wait"],
    });
    this.#gateway = new TestGateway(home, service, `http://${address}`);
  }

  get gateway(): TestGateway {
    if (this.#gateway === undefined) throw new Error("the replica was not started");
    return this.#gateway;
  }

  signal(signal: NodeJS.Signals): void {
    this.gateway.service.child.kill(signal);
  }

  get isRunning(): boolean {
    const { exitCode, signalCode } = this.gateway.service.child;
    return exitCode === null && signalCode === null;
  }

  setClock(aheadMs: number): void {
    this.#writeClock(aheadMs);
    this.signal("SIGUSR2");
  }

  #writeClock(aheadMs: number): void {
    writeFileSync(this.#clockFile, String(aheadMs));
  }

  get #clockFile(): string {
    return path.join(this.#home, "clock");
  }
}
