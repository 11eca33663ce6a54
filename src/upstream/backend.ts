import type { Cancellation } from "./cancellation.ts";
import type { HealthCheck } from "./health-check.ts";
import type { Candidate } from "./load-balancer.ts";
import type { QueryLink } from "./query-link.ts";
import type { ReverseProxy } from "./reverse-proxy.ts";

/** Failed connections in a row after which a target is ejected. */
const MOST_FAILURES = 3;

/** What one of several targets is made of. */
export interface BackendOptions {
  /** As the configuration names it: for the log and the figures. */
  readonly name: string;
  readonly link: QueryLink;
  readonly streams: ReverseProxy;
  readonly probe: HealthCheck;
  /** Milliseconds between two checks. */
  readonly interval: number;
  /** Is told when the target is ejected and when it returns. */
  readonly onChange: (name: string, isLive: boolean) => void;
}

/**
 * One of several targets that serve the same: the ways to it, and whether they are used. It is
 * ejected by three connection failures in a row or a failed check, and returns by a passed one.
 */
export class Backend implements Candidate {
  readonly name: string;
  readonly link: QueryLink;
  readonly streams: ReverseProxy;
  isLive = true;
  failedAt = Number.NEGATIVE_INFINITY;
  readonly #probe: HealthCheck;
  readonly #interval: number;
  readonly #onChange: BackendOptions["onChange"];
  readonly #waiting = new Set<() => void>();
  #failures = 0;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** Checks begin at once. */
  constructor({ name, link, streams, probe, interval, onChange }: BackendOptions) {
    this.name = name;
    this.link = link;
    this.streams = streams;
    this.#probe = probe;
    this.#interval = interval;
    this.#onChange = onChange;
    void this.#check();
  }

  /** Queries on it and in line for it. */
  get load(): number {
    const { busy, waiting } = this.link.limiter;
    return busy + waiting;
  }

  /** Connections that carry a query. */
  get busy(): number {
    return this.link.limiter.busy;
  }

  /** True if it is live, and there when looked at. */
  async isUp(): Promise<boolean> {
    return this.isLive && (await this.#probe.isUp());
  }

  /** Notes a connection that could not be made, or broke before an answer. */
  noteFailure(): void {
    this.failedAt = performance.now();
    this.#failures++;
    if (this.#failures >= MOST_FAILURES) this.#eject();
  }

  /** Notes a connection that held. */
  noteSuccess(): void {
    this.#failures = 0;
  }

  /** When it is ejected: whoever waits for it goes to another one. */
  readonly whenEjected: Cancellation = (leave) => {
    this.#waiting.add(leave);
    return () => this.#waiting.delete(leave);
  };

  async #check(): Promise<void> {
    const isUp = await this.#probe.look();
    if (this.#isClosed) return;
    if (isUp) this.#return();
    else {
      this.failedAt = performance.now();
      this.#eject();
    }
    this.#timer = setTimeout(() => void this.#check(), this.#interval);
  }

  #eject(): void {
    if (!this.isLive) return;
    this.isLive = false;
    this.#onChange(this.name, false);
    for (const leave of [...this.#waiting]) leave();
  }

  #return(): void {
    if (this.isLive) return;
    this.isLive = true;
    this.#failures = 0;
    this.#onChange(this.name, true);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.link.close();
    this.streams.close();
  }
}
