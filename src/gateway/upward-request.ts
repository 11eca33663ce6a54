/** What goes up of a query that may: where to, with which header fields, as which bytes. */
import { limitsText } from "../access/query-limits.ts";
import type { UpwardTrace } from "../observe/request-trace.ts";
import { isReadOnly } from "../query/query.ts";
import { gatewayHeaders, type Identity } from "../upstream/headers.ts";
import type { QueryClient } from "../upstream/query-client.ts";
import { fieldLines, inForm } from "../upstream/query-form.ts";
import type { Asked } from "./added-filters.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import type { Judged } from "./judge.ts";

/** A request that may go up, and how. */
export interface UpwardRequest {
  readonly queries: QueryClient;
  /** Set for `GET` of a path instead of a query. */
  readonly path?: string;
  readonly body: Buffer;
  /** The lines of its header fields. */
  readonly fields: string;
  readonly isRead: boolean;
  readonly trace: UpwardTrace | undefined;
  /** Judges a query that has waited for a connection. @throws Refusal */
  readonly judgeAgain?: () => void;
}

/** How `gatehouse engine` is told what a query may do at the most. */
export const LIMITS_HEADER = "x-gatehouse-limits";
/** How it is told to name nothing of the schema in errors that the query does not name. */
const NARROWED_HEADER = "x-gatehouse-narrowed";

/** Header fields besides those that the gateway adds to all that goes up. */
export type OwnHeaders = Record<string, string | string[]>;

/** The header fields of a request, and its part of the trace. */
export function headed(
  gateway: Gateway,
  exchange: Exchange,
  method: "GET" | "POST",
  own: OwnHeaders,
  identity: Identity | undefined,
): Pick<UpwardRequest, "fields" | "trace"> {
  const { requestId, peer } = exchange;
  const { forwardedFor, proto, host } = peer;
  const trace = exchange.goUp({ method, headers: own, target: gateway.tracing?.upstream });
  const added = gatewayHeaders({ requestId, forwardedFor, proto, host, identity });
  // No name is in both: the configuration lets none through that the gateway sets.
  return { fields: fieldLines(own) + fieldLines(added), trace };
}

/** A query, where it goes, and what of it goes there: itself, or with the filters that it lacks. */
export interface RoutedQuery {
  readonly asked: Asked;
  readonly queries: QueryClient;
  readonly sent: Asked;
  readonly judgeAgain: () => void;
}

/** Makes the request of what was judged. */
export function requestFor(
  gateway: Gateway,
  exchange: Exchange,
  { asked, queries, sent, judgeAgain }: RoutedQuery,
  { decisions, identity, limits, seesSchema }: Judged,
  own: OwnHeaders,
): UpwardRequest {
  exchange.verdict.allow();
  if (sent !== asked) {
    exchange.verdict.filters = decisions.flatMap(({ additions = [] }) => additions);
  }
  if (limits.length > 0) own[LIMITS_HEADER] = limitsText(limits);
  if (!seesSchema && gateway.queries.isEngine) own[NARROWED_HEADER] = "schema";
  const { fields, trace } = headed(gateway, exchange, "POST", own, identity);
  const form = gateway.configuration.upstream.query_form;
  const body = inForm(form, sent.body, sent.query);
  return { queries, body, fields, isRead: isReadOnly(sent.query), trace, judgeAgain };
}
