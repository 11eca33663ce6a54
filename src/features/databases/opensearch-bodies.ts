import type { Steps } from "../../core/base/cooperative-scheduling.ts";
import { parseAccepted, parseUnrounded } from "../../core/json/exact.ts";
import { quoteName } from "../../core/json/fault.ts";
import { LineReader } from "../../core/json/one-reading.ts";
import type { PermissionClass } from "../../core/query/permissions.ts";
import { badRequest, type Lines, requireObject, unknownMember } from "./body.ts";
import { isObject, type Json, type JsonObject } from "./preset.ts";

/** An index, alias, data stream or pattern that a request names. */
export interface NamedIndex {
  readonly name: string;
  readonly permissions: readonly PermissionClass[];
  readonly element?: number | undefined;
  /** True for a write. It makes an index that does not exist, and a document may be a query. */
  readonly makesIndex?: boolean;
  /** True for a name that is given, such as that of a new alias: it is not looked up. */
  readonly isNew?: boolean;
}

/** The names in a body, and whether it has scripts or pipelines. */
export class Uses {
  readonly #names = new Map<string, NamedIndex>();
  /** How many actions, documents or searches the body has. */
  elements = 1;
  /** True if the server runs code that is in the request or stored. */
  scripts = false;
  /** True if something may use other indexes: a pipeline, or a runtime field that looks up. */
  pipelines = false;
  /**
   * Names of the objects in documents that the server parses for a read. `*` for unknown documents.
   * Those in a percolator field are queries, whose lookups it follows.
   */
  readonly parsed = new Set<string>();

  get names(): NamedIndex[] {
    return [...this.#names.values()];
  }

  /** Keeps the first of equal names. */
  add(named: NamedIndex): void {
    const { name, permissions, makesIndex, isNew } = named;
    const key = [name, permissions, makesIndex, isNew].join(" ");
    if (!this.#names.has(key)) this.#names.set(key, named);
  }
}

interface Shape {
  readonly members: ReadonlyMap<string, string>;
  readonly required: readonly string[];
  /** The kind of members that have the name of a field or another name of the client's. */
  readonly rest: string | undefined;
}

/*
 * Kinds of values that are not in the tables:
 * - `plain`: a scalar, or a list of these.
 * - `pattern`: a short scalar. `grouped`: a text without too many parentheses.
 * - `data`: any JSON. It contains no names that the server follows.
 * - `parsed`: a document that the server parses for a read; `percolated`: the index of one.
 * - `index`: the name of an index, which needs SELECT; `boosts`: an object with such names.
 * - `query`, `filters`, `aggs`, `script` and `pipeline`.
 * - `settings` and `mappings` of an index; `aliases`: an object with the names of new ones.
 */

/**
 * Reads a table of shapes: `name,name member member=kind required!=kind +included *=kind`. Members
 * without a kind are plain. A list of a kind may be written wherever the kind may.
 */
function readTable(
  text: string,
  base: ReadonlyMap<string, Shape> = new Map(),
): ReadonlyMap<string, Shape> {
  const shapes = new Map<string, Shape>();
  for (const line of text.trim().split(/\n(?! {4})/)) {
    const [names = "", ...words] = line.trim().split(/\s+/);
    const members = new Map<string, string>();
    const required: string[] = [];
    let rest: string | undefined;
    for (const word of words) {
      const [member = "", kind = "plain"] = word.split("=");
      if (member === "*") rest = kind;
      else if (member.startsWith("+")) {
        const included = shapes.get(member.slice(1)) ?? base.get(member.slice(1));
        for (const [one, its] of included?.members ?? []) members.set(one, its);
      } else {
        if (member.endsWith("!")) required.push(member.slice(0, -1));
        members.set(member.replace("!", ""), kind);
      }
    }
    for (const name of names.split(",")) shapes.set(name, { members, required, rest });
  }
  return shapes;
}

/** Objects within queries, aggregations and searches. */
const shapes = readTable(`
  flat *=plain
  point lat lon type coordinates geohash
  box top left bottom right wkt top_left=point bottom_right=point top_right=point bottom_left=point
  polygon points=point
  geometry type coordinates radius orientation geometries=geometry
  lookup index!=index id path routing store
  shape shape=geometry indexed_shape=lookup relation strategy
  match_text query operator minimum_should_match fuzziness prefix_length max_expansions
    fuzzy_transpositions fuzzy_rewrite lenient zero_terms_query cutoff_frequency analyzer
    auto_generate_synonyms_phrase_query slop boost _name
  term value boost case_insensitive rewrite flags flags_value max_determinized_states wildcard
    prefix regexp fuzziness prefix_length max_expansions transpositions _name
  range gt gte lt lte from to include_lower include_upper format time_zone relation boost _name
  terms_set terms minimum_should_match minimum_should_match_field
    minimum_should_match_script=script boost _name
  common query cutoff_frequency low_freq_operator high_freq_operator minimum_should_match=flat
    analyzer boost _name
  document _index=index _id routing version version_type fields doc=parsed per_field_analyzer=flat
  random seed field
  factor field factor modifier missing
  scripted script=script params=flat
  origin origin=point scale offset decay
  decay multi_value_mode *=origin
  function filter=query weight random_score=random field_value_factor=factor
    script_score=scripted gauss=decay linear=decay exp=decay _name
  curve pivot exponent scaling_factor
  vector vector k filter=query max_distance min_score boost method_parameters=flat rescore=flat
    expand_nested_docs _name
  words query max_gaps ordered mode analyzer use_field filter=between prefix pattern=pattern term
    fuzziness prefix_length transpositions max_expansions case_insensitive
  between before=interval after=interval containing=interval contained_by=interval
    not_containing=interval not_contained_by=interval not_overlapping=interval
    overlapping=interval script=script
  group intervals=interval max_gaps ordered mode filter=between
  interval match=words prefix=words wildcard=words regexp=words fuzzy=words all_of=group
    any_of=group boost _name
  source includes excludes include exclude
  fields field format include_unmapped
  highlighter type number_of_fragments fragment_size fragment_offset fragmenter pre_tags post_tags
    order encoder tags_schema require_field_match boundary_scanner boundary_scanner_locale
    boundary_chars boundary_max_scan no_match_size phrase_limit max_analyzer_offset
    max_analyzed_offset force_source matched_fields highlight_query=query options=flat
  highlighted *=highlighter
  highlight +highlighter fields=highlighted
  nested_sort path filter=query max_children nested=nested_sort
  sort_field order mode missing unmapped_type numeric_type format nested=nested_sort
  distance_sort order unit distance_type mode ignore_unmapped validation nested=nested_sort
    *=point
  script_sort script=script type order mode nested=nested_sort
  sort _script=script_sort _geo_distance=distance_sort *=sort_field
  values field missing format script=script value_type
  bucket field script=script missing_bucket missing_order order interval calendar_interval
    fixed_interval format time_zone offset precision bounds=box value_type
  source_type terms=bucket histogram=bucket date_histogram=bucket geotile_grid=bucket
  sources *=source_type
  collapse field inner_hits=hits max_concurrent_group_searches collapse=collapse
  hits name from size sort=sort collapse=collapse highlight=highlight explain version
    seq_no_primary_term stored_fields docvalue_fields=fields fields=fields _source=source
    script_fields=script track_scores ignore_unmapped
  rescored rescore_query=query query_weight rescore_query_weight score_mode
  rescore window_size query=rescored
  context context=point lat lon prefix boost precision neighbours
  contexts *=context
  completion field size skip_duplicates analyzer shard_size fuzzy=flat regex=flat contexts=contexts
  smoothing *=flat
  phrase field gram_size real_word_error_likelihood confidence max_errors separator size analyzer
    shard_size text token_limit force_unigrams highlight=flat direct_generator=flat
    smoothing=smoothing collate=script
  suggester text prefix regex=pattern term=flat phrase=phrase completion=completion
  suggest text *=suggester
  pit id keep_alive
  nearest field query_vector k num_candidates similarity boost _name filter=query inner_hits=hits
  search query=query from size post_filter=query aggs=aggs aggregations=aggs sort=sort
    _source=source fields=fields docvalue_fields=fields stored_fields highlight=highlight
    suggest=suggest rescore=rescore collapse=collapse slice=flat search_after min_score
    track_total_hits track_scores timeout terminate_after version seq_no_primary_term explain
    profile stats indices_boost=boosts knn=nearest include_named_queries_score pit=pit
    script_fields=script derived=script runtime_mappings=pipeline search_pipeline=pipeline
  only_query query=query runtime_mappings=pipeline
  by_query query=query size max_docs conflicts slice=flat sort=sort script=script
  field_caps fields index_filter=query runtime_mappings=pipeline
  update doc=data upsert=data doc_as_upsert detect_noop scripted_upsert _source=source
    script=script lang
  term_filter *=plain
  document_read _index _id routing version version_type stored_fields _source=source
  documents_read docs=document_read ids
  vectors fields offsets payloads positions term_statistics field_statistics routing version
    version_type doc=parsed per_field_analyzer=flat filter=term_filter
  vectors_of +vectors _index _id
  vectors_read docs=vectors_of ids parameters=vectors
  searched index search_type preference routing request_cache allow_partial_search_results
    ignore_unavailable allow_no_indices expand_wildcards ignore_throttled ccs_minimize_roundtrips
    max_concurrent_shard_requests cancel_after_time_interval
  written _index _id routing version version_type if_seq_no if_primary_term op_type require_alias
    retry_on_conflict _source=source pipeline=pipeline dynamic_templates=flat
  alias filter=query routing index_routing search_routing is_write_index is_hidden
  aliased +alias index indices alias aliases must_exist
  new_index settings=settings mappings=mappings aliases=aliases
  analysis analyzer text field tokenizer normalizer explain attributes filter char_filter
`);

const queryTypes = readTable(
  `
  match_all,match_none boost _name
  match,match_phrase,match_phrase_prefix,match_bool_prefix *=match_text
  multi_match +match_text fields type tie_breaker use_dis_max
  combined_fields query fields operator minimum_should_match zero_terms_query
    auto_generate_synonyms_phrase_query boost _name
  common *=common
  query_string query default_field fields default_operator analyzer quote_analyzer
    quote_field_suffix allow_leading_wildcard max_determinized_states enable_position_increments
    phrase_slop fuzzy_max_expansions fuzzy_prefix_length fuzziness fuzzy_transpositions
    fuzzy_rewrite rewrite escape analyze_wildcard lenient minimum_should_match time_zone type
    tie_breaker auto_generate_synonyms_phrase_query boost _name
  simple_query_string query=grouped fields default_operator analyzer flags lenient analyze_wildcard
    minimum_should_match quote_field_suffix auto_generate_synonyms_phrase_query
    fuzzy_max_expansions fuzzy_prefix_length fuzzy_transpositions boost _name
  term,fuzzy,prefix,wildcard,regexp,span_term *=term
  terms boost _name value_type *=lookup
  terms_set *=terms_set
  range *=range
  exists field boost _name
  ids values boost _name
  bool must=query filter=query should=query must_not=query minimum_should_match
    adjust_pure_negative boost _name
  boosting positive=query negative=query negative_boost boost _name
  constant_score filter=query boost _name
  dis_max queries=query tie_breaker boost _name
  hybrid queries=query filter=query pagination_depth boost _name
  nested path query=query score_mode ignore_unmapped inner_hits=hits boost _name
  has_child type query=query score_mode min_children max_children ignore_unmapped inner_hits=hits
    boost _name
  has_parent parent_type query=query score ignore_unmapped inner_hits=hits boost _name
  parent_id type id ignore_unmapped boost _name
  function_score +function query=query functions=function boost_mode score_mode max_boost min_score
    boost
  script_score query=query script=script min_score boost _name
  script script=script boost _name
  rank_feature field saturation=curve log=curve sigmoid=curve linear=curve boost _name
  distance_feature field origin=point pivot boost _name
  knn +nearest *=vector
  more_like_this fields like=document unlike=document max_query_terms min_term_freq min_doc_freq
    max_doc_freq min_word_length max_word_length stop_words analyzer minimum_should_match
    boost_terms include fail_on_unsupported_field boost _name
  pinned ids docs=document organic=query boost _name
  percolate field document=parsed documents=parsed index=percolated id routing preference version
    name boost _name
  intervals *=interval
  geo_distance distance unit distance_type validation_method ignore_unmapped boost _name *=point
  geo_bounding_box type validation_method ignore_unmapped boost _name *=box
  geo_polygon validation_method ignore_unmapped boost _name *=polygon
  geo_shape,xy_shape ignore_unmapped boost _name *=shape
  span_multi match=query boost _name
  span_first match=query end boost _name
  span_near clauses=query slop in_order boost _name
  span_gap *=plain
  span_or clauses=query boost _name
  span_not include=query exclude=query pre post dist boost _name
  span_containing,span_within little=query big=query boost _name
  field_masking_span query=query field boost _name
`,
  shapes,
);

const aggregationTypes = readTable(
  `
  min,max,sum,avg,stats,value_count,geo_centroid,missing +values
  extended_stats +min sigma
  cardinality +min precision_threshold rehash execution_hint
  percentiles +min percents keyed tdigest=flat hdr=flat
  percentile_ranks +percentiles values
  median_absolute_deviation,boxplot +min compression execution_hint
  string_stats +min show_distribution
  weighted_avg value=values weight=values format value_type
  matrix_stats fields missing=flat mode
  geo_bounds +min wrap_longitude
  top_hits +hits
  top_metrics metrics=flat sort=sort size
  rate +min unit mode
  scripted_metric init_script=script map_script=script combine_script=script reduce_script=script
    params=flat
  terms +min size shard_size min_doc_count shard_min_doc_count show_term_doc_count_error order=flat
    include=flat exclude=flat collect_mode execution_hint
  multi_terms +terms terms=values
  rare_terms +min max_doc_count precision include exclude
  significant_terms +terms background_filter=query mutual_information=flat chi_square=flat gnd=flat
    percentage=flat jlh=flat script_heuristic=script
  significant_text +significant_terms filter_duplicate_text source_fields
  histogram +min interval offset min_doc_count keyed order=flat extended_bounds=flat
    hard_bounds=flat
  date_histogram +histogram calendar_interval fixed_interval time_zone
  auto_date_histogram +min buckets minimum_interval time_zone
  variable_width_histogram +min buckets shard_size initial_buffer
  range +min ranges=flat keyed
  date_range +range time_zone
  ip_range +range
  geo_distance +range origin=point unit distance_type
  geohash_grid,geotile_grid,geohex_grid +min precision size shard_size bounds=box
  composite size sources=sources after=flat
  global
  sampler shard_size
  diversified_sampler +min shard_size max_docs_per_value execution_hint
  nested,reverse_nested path
  children,parent type
  filters filters=filters other_bucket other_bucket_key
  adjacency_matrix filters=filters separator
  avg_bucket,sum_bucket,min_bucket,max_bucket,stats_bucket,cumulative_sum
    buckets_path=flat gap_policy format
  extended_stats_bucket +avg_bucket sigma
  percentiles_bucket +avg_bucket percents keyed
  normalize +avg_bucket method
  derivative +avg_bucket unit
  serial_diff +avg_bucket lag
  moving_avg +avg_bucket window model settings=flat predict minimize
  moving_fn +avg_bucket window shift script=script
  bucket_script,bucket_selector +avg_bucket script=script
  bucket_sort sort=sort from size gap_policy
`,
  shapes,
);

/** True for a scalar, or a list of these. */
function isPlain(value: Json): boolean {
  return Array.isArray(value) ? value.every(isPlain) : !isObject(value);
}

/** OpenSearch ends with a stack overflow at longer regular expressions, or deeper parentheses. */
const LONGEST_PATTERN = 1000;
const MOST_GROUPS = 1000;

/** Objects and lists that are read without a pause. */
const MOST_PARTS = 50_000;

/** Reads the bodies of a request, and collects what they use. */
export class BodyReader {
  readonly uses = new Uses();
  /** Of the action, document or search that is being read. */
  element: number | undefined;
  #parts = 0;

  /**
   * @param kind a name of the tables, such as `search`
   * @throws Refusal `bad_request`, `unknown_member`
   */
  read(kind: string, value: Json): void {
    if (typeof value === "object" && value !== null && ++this.#parts > MOST_PARTS) {
      throw badRequest(`the body has more than ${MOST_PARTS} objects and lists`);
    }
    // Of any other value, OpenSearch seeks the end forever, and serves no one else.
    if (kind === "term_filter") requireObject(value, "filter");
    if (Array.isArray(value) && kind !== "plain" && kind !== "data" && kind !== "filters") {
      for (const one of value) this.read(kind, one);
      return;
    }
    if (kind === "pattern" && String(value).length > LONGEST_PATTERN) {
      throw badRequest(`a pattern has more than ${LONGEST_PATTERN} characters`);
    }
    if (kind === "grouped" && String(value).split("(").length > MOST_GROUPS) {
      throw badRequest(`a query string has ${MOST_GROUPS} or more opening parentheses`);
    }
    if (kind === "percolated") this.uses.parsed.add("*");
    if (kind === "plain" || kind === "pattern" || kind === "grouped") {
      if (!isPlain(value)) throw badRequest("a scalar or a list of scalars is expected");
    } else if (kind === "index" || kind === "percolated") this.select(value);
    else if (kind === "script") this.uses.scripts = true;
    else if (kind === "pipeline") this.uses.pipelines = true;
    else if (kind === "filters") this.#readFilters(value);
    else if (kind === "data" || !isObject(value)) return;
    else if (kind === "parsed") this.#readDocument(value);
    else if (kind === "query") this.#readTyped(queryTypes, "query", value);
    else if (kind === "settings") this.#readSettings(value);
    else if (kind === "mappings") this.#readMappings(value);
    else if (kind === "aliases") {
      for (const [name, alias] of Object.entries(value)) {
        this.nameAlias(name);
        this.read("alias", alias);
      }
    } else if (kind === "boosts") for (const name of Object.keys(value)) this.select(name);
    else if (kind === "aggs") for (const one of Object.values(value)) this.#readAggregation(one);
    else this.#readShape(kind, shapes.get(kind), value);
  }

  #readShape(kind: string, shape: Shape | undefined, object: JsonObject): void {
    if (shape === undefined) throw new Error(`there is no shape ${kind}`);
    const { members, required, rest } = shape;
    for (const [name, value] of Object.entries(object)) {
      const its = members.get(name) ?? rest;
      if (its === undefined) throw unknownMember(name, kind, members.keys());
      if (its !== "plain") this.read(its, value);
      else if (!isPlain(value)) {
        throw badRequest(`${quoteName(name)} in ${kind} must be a scalar or a list of scalars`);
      }
    }
    for (const name of required) {
      if (!Object.hasOwn(object, name)) throw badRequest(`${kind} must have ${quoteName(name)}`);
    }
  }

  #readDocument(document: JsonObject): void {
    for (const [name, value] of Object.entries(document)) {
      if (!isPlain(value)) this.uses.parsed.add(name.slice(name.lastIndexOf(".") + 1));
      this.read("parsed", value);
    }
  }

  #readTyped(types: ReadonlyMap<string, Shape>, noun: string, object: JsonObject): void {
    for (const [type, value] of Object.entries(object)) {
      const shape = types.get(type);
      if (shape === undefined) throw unknownMember(type, noun, types.keys());
      for (const one of Array.isArray(value) ? value : [value]) {
        if (!isObject(one)) continue;
        // A null here is a fatal error of OpenSearch, which ends.
        if (type === "script" && Object.values(one).includes(null)) {
          throw badRequest("a query of type script takes no null");
        }
        this.#readShape(type, shape, one);
      }
    }
  }

  #readFilters(value: Json): void {
    if (Array.isArray(value)) this.read("query", value);
    else if (isObject(value)) for (const one of Object.values(value)) this.read("query", one);
  }

  #readAggregation(value: Json): void {
    if (!isObject(value)) return;
    const { aggs = null, aggregations = null, meta: _, filter = null, ...typed } = value;
    this.read("aggs", aggs);
    this.read("aggs", aggregations);
    this.read("query", filter);
    this.#readTyped(aggregationTypes, "aggregation", typed);
  }

  #readSettings(settings: Json): void {
    this.uses.pipelines ||= someSetting(settings, (word) => wideSetting.test(word));
    // Of a similarity or a filter of tokens.
    this.uses.scripts ||= someSetting(settings, (word) => word === "script");
  }

  /**
   * A field for queries reads other indexes and runs scripts, also before the gateway looks at the
   * mapping again. A runtime field of Elasticsearch that looks up reads other indexes too.
   */
  #readMappings(mappings: Json): void {
    const isWide = (name: string, value: Json) =>
      name === "type" && (value === "percolator" || value === "lookup");
    if (someMember(mappings, isWide)) {
      this.select(EVERY);
      this.uses.pipelines = true;
    }
    this.uses.scripts ||= hasScript(mappings);
  }

  /** Begins with an action or search that is read in a step of its own, counted from 0. */
  begin(element: number): void {
    this.element = element;
    this.uses.elements = element + 1;
    this.#parts = 0;
  }

  /** Adds an index that a value names, with SELECT. @throws Refusal `bad_request` */
  select(value: Json): void {
    this.name(value, ["SELECT"]);
  }

  /** An alias takes the place of an index, and needs the same right. */
  nameAlias(name: string): void {
    this.name(name, ["CREATE"], { isNew: true });
  }

  /** @throws Refusal `bad_request` */
  name(value: Json, permissions: readonly PermissionClass[], more: Partial<NamedIndex> = {}): void {
    if (typeof value !== "string") throw badRequest("an index must be named by a string");
    this.uses.add({ name: value, permissions, element: this.element, ...more });
  }
}

/**
 * The names in a list, which may be written with commas. An empty list is refused, because the server
 * takes it as all indexes.
 *
 * @throws Refusal `bad_request`
 */
export function namesIn(value: Json | undefined): string[] {
  const names = Array.isArray(value) ? value : [value];
  if (names.length === 0) throw badRequest("a list of names is empty");
  return names.flatMap((name) => {
    if (typeof name === "string") return name.split(",");
    throw badRequest("names must be a string or a list of strings");
  });
}

export const EVERY = "_all";

/**
 * The same names without indexes that begin with a dot, which belong to the server and its plugins.
 * Undefined if none of these is meant.
 */
export function withoutHidden(names: readonly string[]): string[] | undefined {
  if (!names.some((name) => name === EVERY || name.startsWith("*"))) return undefined;
  return [...names.map((name) => (name === EVERY ? "*" : name)), "-.*"];
}

const actionTypes: ReadonlySet<string> = new Set(["index", "create", "update", "delete"]);
const insert: readonly PermissionClass[] = ["INSERT"];
const update: readonly PermissionClass[] = ["UPDATE"];
const insertAndUpdate: readonly PermissionClass[] = ["INSERT", "UPDATE"];
const erase: readonly PermissionClass[] = ["DELETE"];

/**
 * The rights of an update. Its script, which may delete the document, is in `uses`.
 *
 * @param isRead true if the answer has the document
 * @throws Refusal
 */
export function readUpdate(
  reader: BodyReader,
  body: JsonObject,
  isRead: boolean,
): readonly PermissionClass[] {
  reader.read("update", body);
  const { doc_as_upsert: asUpsert = false, scripted_upsert: isScripted = false } = body;
  // The server also takes "true".
  const inserts = "upsert" in body || asUpsert !== false || isScripted !== false;
  const rights = inserts ? insertAndUpdate : update;
  const withScript = "script" in body ? [...rights, ...erase] : rights;
  return isRead || "_source" in body ? [...withScript, "SELECT"] : withScript;
}

/** A plain delete makes no index, but one with a version of the client's does. */
export function makesIndexByDelete(versionType: Json | undefined): boolean {
  return versionType !== undefined && versionType !== "internal";
}

interface Action {
  readonly type: string;
  readonly index: Json | undefined;
  /** True if a document that exists may be replaced. */
  readonly replaces: boolean;
  readonly versionType?: Json | undefined;
  /** True if the answer to an update has the document. */
  readonly isRead?: boolean;
}

/** An action with no object in it, so that all keys in it are its own. */
const flatAction = /^\s*\{[^{}]*\{[^{}]*\}\s*\}\s*$/;
const id = /[{,]\s*"(_id)"\s*:\s*$/;
const indexOrId = /[{,]\s*"(_index|_id)"\s*:\s*$/;
const nothing = /(?!)/;

/** Reads the lines of actions. Most differ from the one before in nothing but the id. */
class ActionReader {
  readonly #lines: Lines;
  readonly #reader: BodyReader;
  readonly #similar: LineReader;
  #last: Action | undefined;
  /** True if actions name several indexes. */
  #hasSeveral = false;
  /** Which scalar of similar lines is the index, or -1 if it does not differ. */
  #indexAt = -1;
  /** Where the last index is. */
  #indexStart = 0;

  constructor(lines: Lines, reader: BodyReader) {
    this.#lines = lines;
    this.#reader = reader;
    this.#similar = new LineReader(lines.bytes);
  }

  /** Goes to the next line. @throws Refusal or JsonFault */
  next(): Action {
    const lines = this.#lines;
    const similar = this.#similar;
    const at = this.#indexAt;
    if (!lines.check(similar) || this.#last === undefined) {
      this.#last = this.#parse(lines.text(lines.start, lines.end));
    } else if (at !== -1) {
      const start = similar.startOf(at);
      const end = similar.endOf(at);
      // No index is the beginning of another one: it has quotes around it.
      if (!similar.isRepeated(this.#indexStart, start, end - start)) {
        this.#last = { ...this.#last, index: parseAccepted(lines.text(start, end)) };
        this.#indexStart = start;
      }
    }
    return this.#last;
  }

  #parse(text: string): Action {
    const noun = `action ${this.#reader.element}`;
    const action = requireObject(parseAccepted(text), noun);
    const [type = "", ...more] = Object.keys(action);
    if (!actionTypes.has(type) || more.length > 0) {
      throw badRequest(`${noun} must be one of ${[...actionTypes].join(", ")}`);
    }
    const target = requireObject(action[type], noun);
    this.#reader.read("written", target);
    const { _index: index, version_type: versionType } = target;
    this.#hasSeveral ||= this.#last !== undefined && this.#last.index !== index;
    const differing = this.#hasSeveral ? indexOrId : id;
    const kept = this.#similar.keepAfter(flatAction.test(text) ? differing : nothing);
    this.#indexAt = kept.indexOf("_index");
    this.#indexStart = this.#similar.startOf(this.#indexAt);
    const replaces = target._id !== undefined && target.op_type !== "create";
    return { type, index, replaces, versionType, isRead: "_source" in target };
  }
}

/** Of a bulk, read without a pause. */
const STEP_BYTES = 32 * 1024;

/**
 * Reads the actions of a bulk in steps. Only actions and updates are parsed; documents are checked.
 *
 * @param index of the path
 * @param isRead true if the answer has the documents of all updates
 * @throws Refusal or JsonFault
 */
export function* readBulk(lines: Lines, index: string | undefined, isRead: boolean): Steps<Uses> {
  const reader = new BodyReader();
  const actions = new ActionReader(lines, reader);
  let pause = STEP_BYTES;
  let last: Json | undefined;
  let lastPermissions = update;
  // The server skips empty lines at the end.
  for (let element = 0; !lines.isBlank; element++) {
    reader.begin(element);
    const { type, index: own, replaces, versionType, isRead: reads = false } = actions.next();
    const name = own ?? index;
    if (name === undefined) throw badRequest(`action ${element} names no index`);
    let permissions = type === "index" && replaces ? insertAndUpdate : insert;
    if (type === "delete") permissions = erase;
    else if (lines.isBlank) throw badRequest(`the document of action ${element} is missing`);
    else if (type === "update") {
      const body = requireObject(lines.read(), `the update of action ${element}`);
      permissions = readUpdate(reader, body, isRead || reads);
    } else lines.check();
    if (name !== last || permissions !== lastPermissions || versionType !== undefined) {
      const makesIndex = permissions !== erase || makesIndexByDelete(versionType);
      reader.name(name, permissions, { makesIndex });
      last = name;
      lastPermissions = permissions;
    }
    if (lines.end > pause) {
      pause = lines.end + STEP_BYTES;
      yield;
    }
  }
  return reader.uses;
}

/** Each may grow when it is forwarded. */
const MOST_SEARCHES = 10_000;

/** The searches of a request, and the lines that go upstream if these differ. */
interface Searches {
  readonly uses: Uses;
  readonly body: Buffer | undefined;
}

/**
 * Reads the searches of a `_msearch` in steps: a line with the indexes and one with the search.
 *
 * @param indexes of the path
 * @throws Refusal or JsonFault
 */
export function* readSearches(
  lines: Lines,
  indexes: readonly string[] | undefined,
): Steps<Searches> {
  const reader = new BodyReader();
  const sent: Buffer[] = [];
  /** The offset up to which the lines are in `sent`. */
  let copied = 0;
  for (let element = 0; !lines.isAtEnd; element++) {
    if (element === MOST_SEARCHES) throw badRequest(`more than ${MOST_SEARCHES} searches`);
    reader.begin(element);
    const head = requireObject(lines.read(), `the header of search ${element}`);
    const { start, end } = lines;
    reader.read("searched", head);
    const names = head.index === undefined ? (indexes ?? [EVERY]) : namesIn(head.index);
    for (const name of names) reader.select(name);
    const shown = withoutHidden(names);
    if (shown !== undefined) {
      const written = parseUnrounded(lines.text(start, end));
      const changed = Buffer.from(JSON.stringify({ ...written, index: shown }));
      sent.push(lines.bytes.subarray(copied, start), changed);
      copied = end;
    }
    if (lines.isAtEnd) throw badRequest("the last search has no body");
    const search = requireObject(lines.read(), `search ${element}`);
    if ("pit" in search) throw badRequest("a point in time is not allowed in _msearch");
    reader.read("search", search);
    requireOpenWildcards(head.expand_wildcards ?? "open");
    yield;
  }
  const rest = lines.bytes.subarray(copied);
  return { uses: reader.uses, body: copied === 0 ? undefined : Buffer.concat([...sent, rest]) };
}

const wildcards = /^(?:open|closed|none)$/;

/** @throws Refusal `bad_request`, also for hidden indexes, which are not for clients */
export function requireOpenWildcards(value: Json): void {
  if (namesIn(value).every((one) => wildcards.test(one))) return;
  throw badRequest("expand_wildcards must be open, closed or none");
}

/** @throws Refusal */
export function readDocuments(body: Json, index: string | undefined, kind: string): Uses {
  const reader = new BodyReader();
  const object = requireObject(body);
  reader.read(kind, object);
  const documents = [object.docs ?? []].flat();
  const ids = [object.ids ?? []].flat();
  for (const [element, document] of documents.entries()) {
    reader.element = element;
    const name = isObject(document) ? (document._index ?? index) : index;
    if (name === undefined) throw badRequest(`document ${element} names no index`);
    reader.select(name);
  }
  if (object.ids !== undefined || documents.length === 0) {
    reader.element = undefined;
    if (index === undefined) throw badRequest("the documents are of no index");
    reader.select(index);
  }
  reader.uses.elements = Math.max(1, documents.length + ids.length);
  return reader.uses;
}

/** @throws Refusal */
export function readAliasActions({ actions = [] }: JsonObject): Uses {
  const reader = new BodyReader();
  const all = [actions].flat();
  reader.uses.elements = Math.max(1, all.length);
  for (const [element, action] of all.entries()) {
    reader.element = element;
    const [type = "", ...more] = Object.keys(requireObject(action, "an action"));
    if (!["add", "remove", "remove_index"].includes(type) || more.length > 0) {
      throw badRequest("an action must be one of add, remove, remove_index");
    }
    const target = requireObject(isObject(action) ? action[type] : undefined, "an action");
    reader.read("aliased", target);
    const { index, indices, alias, aliases } = target;
    if (index !== undefined && indices !== undefined) throw badRequest("use index or indices");
    if (alias !== undefined && aliases !== undefined) throw badRequest("use alias or aliases");
    const right: PermissionClass = type === "remove_index" ? "DROP" : "CREATE";
    const names = namesIn(index ?? indices);
    if (withoutHidden(names) !== undefined) {
      throw badRequest("name the indexes of an action, or a pattern that does not begin with *");
    }
    for (const name of names) reader.name(name, [right]);
    if (type !== "remove_index") {
      for (const name of namesIn(alias ?? aliases)) reader.nameAlias(name);
    }
  }
  return reader.uses;
}

/** @throws Refusal */
export function readAlias(body: Json | undefined, name: string): Uses {
  const reader = new BodyReader();
  reader.nameAlias(name);
  reader.read("alias", body ?? null);
  return reader.uses;
}

/** True for a member of one of the objects in a value, however deep. */
function someMember(value: Json, test: (name: string, value: Json) => boolean): boolean {
  return Object.entries(value ?? {}).some(
    ([name, one]) => test(name, one) || (typeof one === "object" && someMember(one, test)),
  );
}

/**
 * Settings that let documents or searches pass through a pipeline, or reach what is not of the index:
 * a snapshot, a stream, a list of synonyms of the server, or a file in its configuration directory.
 * With a larger `max_regex_length`, a search can end the server.
 */
const wideSetting =
  /^(?:(?:default|final)_pipeline|searchable_snapshot|ingestion_source|synonyms_set|user_dictionary|rule_files|max_regex_length|.*_path)$/;

/** True for a setting, nested or written with dots, one of whose words is meant. */
function someSetting(settings: Json, isMeant: (word: string) => boolean): boolean {
  return someMember(settings, (name) => name.split(".").some(isMeant));
}

/** The names of fields for queries. `mapping` is that of a template for fields of any name. */
export function percolatorsIn(mapping: Json): string[] {
  return Object.entries(mapping ?? {}).flatMap(([name, one]) => [
    ...(isObject(one) && one.type === "percolator" ? [name] : []),
    ...(typeof one === "object" ? percolatorsIn(one) : []),
  ]);
}

/** The members of a mapping that list fields by their names. */
const namedMembers = new Set(["properties", "fields", "derived", "runtime"]);

/** @param areNames true in a list of fields, of which one may be called `script` */
function hasScript(mapping: Json, areNames = false): boolean {
  if (Array.isArray(mapping)) return mapping.some((one) => hasScript(one));
  if (!isObject(mapping)) return false;
  return Object.entries(mapping).some(
    ([name, value]) =>
      (!areNames && name === "script") || hasScript(value, !areNames && namedMembers.has(name)),
  );
}
