import type { Query } from "../query/query.ts";
import { Refusal } from "../refusal.ts";
import { Backend, type BackendOptions, LoadBalancer, type TargetState } from "./backend.ts";
import { createQueryClient, type QueryClient } from "./query-client.ts";
import type { StreamForwarder } from "./reverse-proxy.ts";
import type { UpstreamTarget } from "./target.ts";

/** Backends that serve the same databases, and the ways to whichever of them is chosen. */
export interface BackendGroup {
  readonly queries: QueryClient;
  readonly streams: StreamForwarder;
  readonly targets: readonly TargetState[];
  /** True if one of them can be used. */
  isUp(): Promise<boolean>;
  close(): void;
}

const none: ReadonlySet<Backend> = new Set();

/**
 * Carries streams to the first live one of several backends: each goes to the same one as long as
 * that lives, and nothing is sent twice.
 */
function streamsTo(balancer: LoadBalancer<Backend>): StreamForwarder {
  return {
    async forward(stream) {
      const backend = balancer.first() ?? balancer.leastRecentlyFailed(none);
      try {
        await backend?.forward(stream);
      } catch (error) {
        const isFailure = error instanceof Refusal && error.code === "upstream_unreachable";
        if (isFailure) backend?.noteFailure();
        throw error;
      }
    },
  };
}

/** Opens the ways to targets that serve the same; several are checked from now on. */
export function openBackendGroup(
  first: UpstreamTarget,
  others: readonly UpstreamTarget[],
  options: BackendOptions,
): BackendGroup {
  const isSingle = others.length === 0;
  const backends = [first, ...others].map((target) => new Backend(target, isSingle, options));
  return {
    queries: createQueryClient(new LoadBalancer(backends)),
    streams: streamsTo(new LoadBalancer(backends)),
    targets: backends,
    async isUp() {
      const answers = await Promise.all(backends.map((backend) => backend.isUp()));
      return answers.includes(true);
    },
    close() {
      for (const backend of backends) backend.close();
    },
  };
}

/** The names of a refusal's message, at most. */
const NAMED = 8;

function listed(names: readonly string[]): string {
  const shown = names.slice(0, NAMED).join(", ");
  return names.length > NAMED ? `${shown} and ${names.length - NAMED} more` : shown;
}

/** Where each database lives, and the ways there. */
export class DatabaseRouting {
  readonly #home: BackendGroup;
  readonly #elsewhere: ReadonlyMap<string, BackendGroup>;

  /** @param elsewhere where those live that do not live with the others, by their exact names */
  constructor(home: BackendGroup, elsewhere: ReadonlyMap<string, BackendGroup>) {
    this.#home = home;
    this.#elsewhere = elsewhere;
  }

  /** True if every database lives at one place. */
  get isOne(): boolean {
    return this.#elsewhere.size === 0;
  }

  /**
   * The way of a query.
   *
   * @throws Refusal `batch_across_upstreams` if its databases live at different places
   */
  queriesOf(query: Query): QueryClient {
    if (this.isOne) return this.#home.queries;
    const places = new Set(query.accesses.map(({ database }) => this.#groupOf(database)));
    const [place = this.#home] = places;
    if (places.size <= 1) return place.queries;
    const names = [...new Set(query.accesses.map(({ database }) => database))];
    const message = `A Batch goes to one upstream, and these databases live on several: ${listed(names)}`;
    throw new Refusal("batch_across_upstreams", { message });
  }

  /** The way of streams about a database; undefined: about none. */
  streamsOf(database: string | undefined): StreamForwarder {
    return database === undefined ? this.#home.streams : this.#groupOf(database).streams;
  }

  #groupOf(database: string): BackendGroup {
    return this.#elsewhere.get(database) ?? this.#home;
  }

  /** Each place where databases live, and which of them do. */
  get places(): { queries: QueryClient; holds(database: string): boolean }[] {
    return this.#groups.map((group) => ({
      queries: group.queries,
      holds: (database) => this.#groupOf(database) === group,
    }));
  }

  get #groups(): BackendGroup[] {
    return [this.#home, ...new Set(this.#elsewhere.values())];
  }

  /** Every target of every place. */
  get targets(): TargetState[] {
    return this.#groups.flatMap(({ targets }) => targets);
  }

  /** The databases that live at a target by their names; undefined where all others live. */
  databasesAt(target: TargetState): string[] | undefined {
    if (this.#home.targets.includes(target)) return undefined;
    const here = this.#elsewhere.entries().filter(([, group]) => group.targets.includes(target));
    return here.map(([database]) => database).toArray();
  }

  /** True if each place has a target that can be used. */
  async isUp(): Promise<boolean> {
    const answers = await Promise.all(this.#groups.map((group) => group.isUp()));
    return !answers.includes(false);
  }
}
