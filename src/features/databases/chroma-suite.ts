import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { chroma } from "./chroma.ts";
import {
  get,
  member,
  post,
  remove,
  SECRET,
  type Send,
  type Suite,
  type SuiteRun,
} from "./suite.ts";

const ALPHA = "gatehouse_test_a";
const BRAVO = "gatehouse_test_b";
const CHARLIE = "gatehouse_test_c";
const DELTA = "gatehouse_test_d";
const FRESH = "gatehouse_test_e";
/** Chroma cannot delete a tenant, so this one stays. */
const TENANT = "gatehouse_test_t";

/** Longer than the gateway remembers the name of a collection. */
const FORGOTTEN_MS = 1200;
const RACES = 25;

const tenants = "/api/v2/tenants";
const databases = `${tenants}/default_tenant/databases`;
const collections = `${databases}/${ALPHA}/collections`;
const elsewhere = `${tenants}/${TENANT}/databases/${ALPHA}`;

const content = `
  operator POST /$T {"name":"$TENANT"} 200,409
  operator POST /$D /$T/$TENANT/databases {"name":"$A"}
  operator POST /$D {"name":"$B"}
  operator POST /$C {"name":"open"} 200 OPEN=id
  operator POST /$C {"name":"hidden"} 200 HIDDEN=id
  operator POST /$S {"name":"secret"} 200 SECRET=id
  # In a database of the same name of another tenant
  operator POST /$E {"name":"foreign"} 200 FOREIGN=id
  operator POST /$C/$OPEN/add {"ids":["1"],"embeddings":[[1,2,3]],"documents":["for all"]}
  operator POST /$C/$HIDDEN/add /$S/$SECRET/add /$E/$FOREIGN/add
    | {"ids":["1"],"embeddings":[[1,2,3]],"documents":["$HUSH"]}
`;

const names = {
  A: ALPHA,
  B: BRAVO,
  CHARLIE,
  DELTA,
  FRESH,
  TENANT,
  HUSH: SECRET,
  T: tenants.slice(1),
  D: databases.slice(1),
  C: collections.slice(1),
  S: `${databases.slice(1)}/${BRAVO}/collections`,
  E: `${elsewhere.slice(1)}/collections`,
};

async function clean(direct: Send): Promise<void> {
  const own = [ALPHA, BRAVO, CHARLIE, DELTA, FRESH].map((name) => `${databases}/${name}`);
  for (const base of [...own, elsewhere]) {
    // A database that is gone leaves its collections behind.
    const { json } = await direct(get(`${base}/collections`));
    for (const one of Array.isArray(json) ? json : []) {
      await direct(remove(`${base}/collections/${String(member(one, "name"))}`));
    }
    await direct(remove(base));
  }
}

/** Everything that most users may neither read nor change. */
const protectedState = `
  operator GET /$C/by-id/$HIDDEN /$S/by-id/$SECRET /$E/by-id/$FOREIGN /$S /$E
  operator POST /$C/$HIDDEN/get /$S/$SECRET/get /$E/$FOREIGN/get {}
`;

const requests = `
  reader GET /$D/$A /$C /$D/$A/collections_count /$C/open /$C/by-id/$OPEN /$C/$OPEN/count /$C/$OPEN/fork_count
    | /$C/$OPEN/indexing_status
  reader POST /$C {"name":"open","get_or_create":true}
  reader POST /$C/$OPEN/get {}
  reader POST /$C/$OPEN/query {"query_embeddings":[[1,2,3]],"n_results":1}
  reader POST /$C/$OPEN/search {"searches":[{"limit":{"limit":1}}]}
  writer POST /$C/$OPEN/add /$C/$OPEN/upsert
    | {"ids":["$USER"],"embeddings":[[1,2,3]],"documents":["written"]}
  writer POST /$C/$OPEN/update {"ids":["$USER"],"documents":["updated"]}
  writer POST /$C/$OPEN/delete {"ids":["$USER"]}
  builder PUT /$C/$OPEN {"new_metadata":{"by":"$USER"}}
  builder POST /$C {"name":"made-by-$USER"}
  operator DELETE /$C/made-by-$USER
  builder POST /$C {"name":"made-by-$USER","get_or_create":true}
  operator DELETE /$C/made-by-$USER
  builder PUT /$C/$OPEN {"new_name":"renamed"}
  operator PUT /$C/$OPEN {"new_name":"open"}
  builder POST /$C/$OPEN/fork {"new_name":"made-by-$USER"}
  operator DELETE /$C/made-by-$USER
  operator POST /$C {"name":"made-by-$USER"}
  builder DELETE /$C/made-by-$USER
  operator DELETE /$C/made-by-$USER
`;

const lists = `
  reader GET /$D 200 +$A -$B
  reader GET /api/v2/auth/identity 200 +"databases":["$A"]
  stranger GET /$D 200 +$B -$A
  stranger GET /api/v2/auth/identity 200 +"databases":["$B"]
  guest GET /$D 200 -$A -$B
  guest GET /api/v2/auth/identity 200 +"databases":[]
  # A database with the role None
  wide GET /$D 200 +$A -$B
  narrow GET /$C /$C?limit=1 200 +"name":"open" -hidden
  narrow GET /$C?limit=10&offset=1 200 +[] -open -hidden
  narrow GET /$D/$A/collections_count 200 +1
  # It may do anything there, but not with collections that begin with hidden
  partial GET /$C 200 +"name":"open" -hidden
`;

const servers = `
  stranger GET /api/v2/heartbeat /api/v2/healthcheck /api/v2/version /api/v2/pre-flight-checks 200
  reader GET /$T/default_tenant 200
  guest GET /$T/$TENANT /$T/$TENANT/databases/$A/collections 200
  reader,builder POST /$D {"name":"$FRESH"} 403
  owner POST /$D {"name":"$FRESH"} 200
  reader DELETE /$D/$FRESH 403
  builder DELETE /$D/$A 403 role_insufficient
  owner DELETE /$D/$FRESH 200
  owner POST /$T {"name":"$TENANT_2"} 403
  admin POST /$T {"name":"a.b"} 400 bad_request
  operator GET /$D/$A 200
`;

/** What users with entries for a few collections may do with the others. */
const tables = `
  narrow GET /$D/$A /$C/open 200
  narrow POST /$C/$OPEN/get {} 200
  operator POST /$C {"name":"part-1"} 200 PART=id
  partial PUT /$C/$PART {"new_name":"hidden"} || {"new_name":"hidden-2"} 403
  partial POST /$C/$PART/fork {"new_name":"hidden"} || {"new_name":"hidden-2"} 403
  partial POST /$C {"name":"hidden"} || {"name":"hidden","get_or_create":true}
    | || {"name":"hidden-2"} || {"name":"hidden-2","get_or_create":true} 403
  partial POST /$C {"name":"part-3"} 200
  partial PUT /$C/$PART {"new_name":"part-2"} 200
  partial DELETE /$C/part-2 200
`;

/** It exists. */
const shared = `
  reader POST /$C {"name":"open","get_or_create":true,"metadata":{"a":1}} 200
`;

const attacks = `
  # UUIDs of other databases, tenants and collections
  owner POST /$C/$SECRET/get /$C/$FOREIGN/get /$C/$UPPER/get /$C/$PLAIN/get /$C/%7B$SECRET%7D/get
    | /$C/urn:uuid:$SECRET/get /$C/$OPEN/attached_functions/f/detach {} 404
  owner POST /$C/$SECRET/query /$C/$SECRET/search {"query_embeddings":[[1,2,3]],"searches":[]} 404
  owner POST /$C/$SECRET/add /$C/$SECRET/upsert
    | {"ids":["1"],"embeddings":[[1,2,3]],"documents":["evil"]} 404
  owner POST /$C/$SECRET/update {"ids":["1"],"documents":["evil"]} 404
  owner POST /$C/$SECRET/delete {"ids":["1"]} 404
  owner POST /$C/$SECRET/fork {"new_name":"stolen"} 404
  owner PUT /$C/$SECRET {"new_name":"mine"} 404
  owner DELETE /$C/$SECRET 404
  owner GET /$C/$SECRET /$C/$SECRET/count /$C/by-id/$SECRET 404
  owner POST /$T/$TENANT/databases/$A/collections/$FOREIGN/get
    | /$T/$TENANT/databases/$A/collections/$OPEN/get
    | /$D/gatehouse_test_zz/collections/$SECRET/get {} 403
  narrow POST /$C/$HIDDEN/get /$C/$HIDDEN/query /$C/$HIDDEN/search {"query_embeddings":[[1,2,3]]} 404
  narrow GET /$C/$HIDDEN/count /$C/by-id/$HIDDEN 404
  narrow GET /$C/hidden 403
  narrow GET /$C/Open 403 name_case_mismatch
  partial PUT /$C/$HIDDEN {"new_name":"part-9"} || {} 404
  partial DELETE /$C/hidden /$D/$A 403
  # Paths
  owner GET /$C/ /$D/*/collections /$D/_all/collections /$D/$A,$B/collections
    | /$D/$TENANT.$A/collections /$D/default_tenant.$B/collections
    | /api/v2/collections/default_tenant:$B:secret /$C/default_tenant:$B:secret /API/V2/heartbeat
    | /api/v1/collections /api/v1/collections?tenant=default_tenant&database=$B /openapi.json
    | /docs/ / /$C/$OPEN/functions/f 404
  owner GET /$S/secret /$S /$D/$B/collections_count /$D/$B
    | /$D/gatehouse_test_%62/collections/secret /$D/GATEHOUSE_TEST_B/collections/secret
    | /$D/GATEHOUSE_TEST_A/collections /$T/DEFAULT_TENANT/databases/$B /$T/$TENANT
    | /$T/gatehouse_test_zz 403
  owner GET /$D/$A/../$B/collections/secret /$D/$A/%2e%2e/$B/collections/secret
    | /$D/$A//../$B/collections/secret /$C?limit=1&limit=2 /$C?limit=1&%6cimit=2 /$C?limit=-1 400
  owner GET /$C/..%2f..%2f$B%2fcollections/secret /$D%2f$B/collections/secret
    | /$D/$A/%252e%252e/$B/collections/secret /$D/$A/..%5c$B/collections/secret
    | /$D/$A;x=/../$B/collections/secret /$D/$B%00$A/collections/secret 400,404
  # Bodies
  owner POST /$C ["evil",null] || "evil" || {"name":"../$B"} || {"name":["evil"]} 400
  owner PUT /$C/$OPEN ["evil"] || {"new_name":["evil"]} 400
  owner POST /$C {"name":"evil","database":"$B"} || {"name":"evil","tenant":"$TENANT"}
    | || {"name":"evil","id":"$SECRET"}
    | || {"name":"evil","schema":{"source_attached_function_id":"$SECRET"}} 400 unknown_member
  owner PUT /$C/$OPEN {"name":"evil"} 400 unknown_member
  owner POST /$D {"name":"$FRESH","tenant":"$TENANT"} 400 unknown_member
  owner PUT /$C/open {"new_name":"evil"} 400
  owner POST /$C/$OPEN/fork {} 400
  reader POST /$C {"name":"open","get_or_create":"true"} 400
  admin POST /$T ["evil"] 400
  # Functions of administrators, methods and headers
  admin POST /api/v2/reset {} 404
  owner POST /$C/$OPEN/functions/attach {"name":"f"} 404
  owner HEAD /$D/$B 403
  owner PUT,DELETE /$C 405
  reader POST /$C x-http-method-override:DELETE x-method-override:DELETE {"name":"evil"} 403
  stranger GET /$C x-original-url:/$D/$B/collections x-rewrite-url:/$D/$B/collections 403
`;

const renaming = `
  narrow GET /$C/$OPEN/count 200
  operator PUT /$C/$OPEN {"new_name":"closed"}
`;
const renamingBack = `
  narrow GET /$C/$OPEN/count 404
  operator PUT /$C/$OPEN {"new_name":"open"}
`;

/** Names that change while requests are under way. */
async function checkRaces(run: SuiteRun): Promise<void> {
  const { direct } = run;
  const shared = { name: "fleeting", get_or_create: true };
  let created = 0;
  let refused = 0;
  for (let race = 0; race < RACES; race++) {
    await direct(post(collections, { name: "fleeting" }));
    const asked = run.as("reader")(post(collections, shared));
    await direct(remove(`${collections}/fleeting`));
    const { status } = await asked;
    if (status === 403 || status === 404) refused++;
    const after = await direct(get(`${collections}/fleeting`));
    if (after.status !== 404) created++;
    await direct(remove(`${collections}/fleeting`));
  }
  const found = `${created} created, ${refused} refused`;
  run.held(
    "a reader creates nothing by get_or_create in a race with a delete",
    created === 0,
    found,
  );
  await run.checkTable(renaming);
  await delay(FORGOTTEN_MS);
  await run.checkTable(renamingBack);
  await delay(FORGOTTEN_MS);
  await run.checkTable("narrow GET /$C/$OPEN/count 200");
}

/** Requests of users who may use `gatehouse_test_c`, and one collection of it. */
const observations = `
  solo GET /api/v2/auth/identity /$D /$D?limit=2 /$D/$CHARLIE/collections
    | /$D/$CHARLIE/collections_count /$D/$CHARLIE/collections?limit=1&offset=1
    | /$D/$CHARLIE/collections/mine /$D/$CHARLIE/collections/theirs
    | /$D/$CHARLIE/collections/by-id/$OTHER /$D/$CHARLIE/collections/by-id/$THEIRS
    | /$D/$DELTA /$D/$DELTA/collections /$D/$DELTA/collections/mine
  solo POST /$D/$DELTA/collections {"name":"mine","get_or_create":true}
  solo POST /$D/$DELTA/collections/$OTHER/get /$D/$CHARLIE/collections/$OTHER/get {}
  solo POST /$D/$CHARLIE/collections/$OTHER/query {"query_embeddings":[[1,2,3]]}
  solo POST /$D/$CHARLIE/collections {"name":"theirs","get_or_create":true}
  solo POST /$D/$CHARLIE/collections/$THEIRS/add {"ids":["2"],"embeddings":[[1,2,3]]}
  solo DELETE /$D/$CHARLIE/collections/theirs /$D/$DELTA
`;
const ownContent = `
  operator POST /$D {"name":"$CHARLIE"}
  operator POST /$D/$CHARLIE/collections {"name":"mine"} 200 MINE=id
  operator POST /$D/$CHARLIE/collections/$MINE/add
    | {"ids":["1"],"embeddings":[[1,2,3]],"documents":["own"]}
`;
const otherContent = `
  operator POST /$D {"name":"$DELTA"}
  operator POST /$D/$DELTA/collections {"name":"mine"} 200 OTHER=id
  operator POST /$D/$DELTA/collections/$OTHER/add
    | {"ids":["1"],"embeddings":[[1,2,3]],"documents":["$HUSH"]}
`;
const theirContent = `
  operator POST /$D/$CHARLIE/collections {"name":"theirs"} 200 THEIRS=id
`;

/** Nothing tells a caller whether there is anything besides what it may use. */
async function checkDifference(run: SuiteRun): Promise<void> {
  Object.assign(run.names, { OTHER: randomUUID(), THEIRS: randomUUID() });
  await run.fill(ownContent);
  await run.checkUnchanged("solo-narrow", observations, async () => {
    await run.checkUnchanged("solo", observations, () => run.fill(otherContent));
    await run.fill(theirContent);
  });
}

export const chromaSuite: Suite = {
  preset: chroma,
  grants: [
    { user: "reader", database: ALPHA, role: "ReadOnly" },
    { user: "writer", database: ALPHA, role: "ReadWrite" },
    { user: "builder", database: ALPHA, role: "DbAdmin" },
    { user: "owner", database: ALPHA, role: "Owner" },
    { user: "owner", database: FRESH, role: "Owner" },
    { user: "stranger", database: BRAVO, role: "DbAdmin" },
    { user: "guest", database: `${TENANT}.${ALPHA}`, role: "ReadOnly" },
    { user: "wide", database: "*", role: "ReadWrite" },
    { user: "wide", database: BRAVO, role: "None" },
    { user: "narrow", database: ALPHA, role: "ReadOnly", tables: ["open"] },
    { user: "partial", database: ALPHA, role: "Owner" },
    { user: "partial", database: ALPHA, role: "None", tables: ["hidden*"] },
    { user: "solo", database: CHARLIE, role: "ReadWrite" },
    { user: "solo-narrow", database: CHARLIE, role: "ReadWrite", tables: ["mine"] },
  ],
  names,
  async run(run) {
    await run.fill(content);
    const { OPEN = "", SECRET: id = "" } = run.names;
    Object.assign(run.names, { UPPER: id.toUpperCase(), PLAIN: id.replaceAll("-", "") });
    await run.checkUnchanged("operator", protectedState, async () => {
      // Chroma does not implement all of them on a single node, and answers with its own errors.
      await run.checkRoles(requests, true);
      // The collection was renamed for a moment.
      await delay(FORGOTTEN_MS);
      await run.checkTable(lists + servers + tables);
      const values = { tenant: "default_tenant", database: ALPHA, name: "open", id: OPEN };
      await run.checkForms(chroma, "owner", values);
      await run.checkTable(attacks);
      await checkRaces(run);
      const open = "operator GET /$C/open";
      await run.checkUnchanged("operator", open, () => run.checkTable(shared));
    });
    await checkDifference(run);
  },
  clean,
};
