import { writeFileSync } from "node:fs";
import path from "node:path";
import { startGateway, TestGateway } from "../../kit/gateway.ts";
import type { TestStore } from "../kit.ts";
import { storeConfig } from "../kit.ts";
import type { Host } from "./network.ts";

/** Seconds: a lease of 7. */
export const MAX_STALENESS = 2;

/** Starts, of which each has lost the store between finding it and reading it. */
const MOST_STARTS = 20;

/** Starts a replica, and again if it loses the store on the way. */
export async function startedAtLast<Started>(start: () => Promise<Started>): Promise<Started> {
  for (let tries = 1; ; tries++) {
    try {
      return await start();
    } catch (error) {
      const isLost = error instanceof Error && /does not (answer|respond)/.test(error.message);
      if (!isLost || tries === MOST_STARTS) throw error;
    }
  }
}

/** A clock that goes by what a file says, in milliseconds, from each SIGUSR2 on. */
const clock = (file: string) => `
import { readFileSync } from "node:fs";
const { now } = Date;
let ahead = 0;
Date.now = () => now() + ahead;
const read = () => (ahead = Number(readFileSync(${JSON.stringify(file)}, "utf8")));
read();
process.on("SIGUSR2", read);
`;

interface Teardown {
  teardown(work: () => unknown): void;
}

/** A replica on a host of its own, with a clock that can be set. */
export class FaultyReplica {
  readonly #t: Teardown;
  readonly #store: TestStore;
  readonly #upstream: string;
  readonly host: Host;
  /** As the front calls it. */
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

  /** Starts it, as a supervisor would. */
  start(): Promise<void> {
    return startedAtLast(() => this.#start());
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
      ...{ home: this.#home, config, upstream: this.#upstream, port: listen.port, through },
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

  /** Sends a signal to its process. */
  signal(signal: NodeJS.Signals): void {
    this.gateway.service.child.kill(signal);
  }

  get isRunning(): boolean {
    const { exitCode, signalCode } = this.gateway.service.child;
    return exitCode === null && signalCode === null;
  }

  /** Sets its wall clock so many milliseconds ahead of the true time. */
  setClock(ahead: number): void {
    this.#writeClock(ahead);
    this.signal("SIGUSR2");
  }

  #writeClock(ahead: number): void {
    writeFileSync(this.#clockFile, String(ahead));
  }

  get #clockFile(): string {
    return path.join(this.#home, "clock");
  }
}
