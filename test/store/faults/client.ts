import type { Random } from "./random.ts";
import type { Rig } from "./rig.ts";

/** A change may wait for a lease. */
const CHANGE_TIMEOUT_MS = 8500;
const READ_TIMEOUT_MS = 3000;

export interface Target {
  readonly url: string;
  /** Undefined for the load balancer. */
  readonly replica: string | undefined;
}

interface Reply {
  readonly status: number;
  readonly code: string;
  readonly body: Record<string, unknown>;
  readonly replica: string;
}

/** `refused` if no process accepted the connection, `unknown` if there was no answer. */
export type Outcome = Reply | "refused" | "unknown";

interface Request {
  readonly method: string;
  readonly route: string;
  readonly content?: object;
  readonly token?: string;
  readonly isChange?: boolean;
}

/** Codes after which it is unknown whether a change was made. */
const uncertain = ["store_uncertain", "internal_error"];

export function changeOf(outcome: Outcome): "made" | "refused" | "unknown" {
  if (typeof outcome === "string") return outcome;
  if (outcome.status < 300) return "made";
  // The load balancer answers 502 and 504 if it loses a replica.
  const isUnknown = uncertain.includes(outcome.code) || [502, 504].includes(outcome.status);
  return isUnknown ? "unknown" : "refused";
}

function isRefusal(error: unknown): boolean {
  return error instanceof Error && /ECONNREFUSED/.test(String(error.cause));
}

export class Clients {
  readonly #targets: readonly Target[];
  readonly #random: Random;
  /** Number of answers by status and code. */
  readonly answers: Map<string, number> = new Map();

  constructor({ replicas, balancer }: Rig, random: Random) {
    const direct = replicas.map(({ gateway, name }) => ({ url: gateway.url, replica: name }));
    const balanced = balancer === undefined ? [] : [{ url: balancer, replica: undefined }];
    this.#targets = [...direct, ...balanced];
    this.#random = random;
  }

  /** A random target. */
  get anywhere(): Target {
    return this.#random.of(this.#targets);
  }

  get everywhere(): readonly Target[] {
    return this.#targets;
  }

  async ask(target: Target, request: Request): Promise<Outcome> {
    const { method, route, content, token, isChange = false } = request;
    const headers: Record<string, string> = {};
    if (token !== undefined) headers.authorization = `Bearer ${token}`;
    if (content !== undefined) headers["content-type"] = "application/json";
    const init = {
      method,
      headers,
      signal: AbortSignal.timeout(isChange ? CHANGE_TIMEOUT_MS : READ_TIMEOUT_MS),
    };
    const body = content === undefined ? {} : { body: JSON.stringify(content) };
    try {
      const response = await fetch(`${target.url}${route}`, { ...init, ...body });
      const text = await response.text();
      const replica = target.replica ?? response.headers.get("x-replica") ?? "balancer";
      const reply = { status: response.status, replica, ...parsed(text) };
      this.#count(`${reply.status} ${reply.code}`);
      return reply;
    } catch (error) {
      const outcome = isRefusal(error) ? "refused" : "unknown";
      this.#count(outcome);
      return outcome;
    }
  }

  #count(answer: string): void {
    this.answers.set(answer, (this.answers.get(answer) ?? 0) + 1);
  }
}

function parsed(text: string): Pick<Reply, "code" | "body"> {
  try {
    const body: Record<string, unknown> = JSON.parse(text);
    return { body, code: String(body.code ?? "") };
  } catch {
    return { body: {}, code: "" };
  }
}
