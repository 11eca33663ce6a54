"""Calls the Python client as one user, and prints what came of each call as JSON.

Arguments: the port of the gateway, the user's token, an administrator's token.
"""

import json
import sys

from opensearchpy import Index, OpenSearch, analyzer, helpers
from opensearchpy.exceptions import TransportError

port, token, admin_token = sys.argv[1:]
INDEX = "shop-items"


def connect(bearer):
    headers = {"Authorization": f"Bearer {bearer}"}
    return OpenSearch(f"http://127.0.0.1:{port}", headers=headers, timeout=60)


admin = connect(admin_token)
for name in [INDEX, "shop-new", "shop-stream", "shop-model"]:
    if admin.indices.exists(index=name):
        admin.indices.delete(index=name)
mappings = {"properties": {"t": {"type": "text"}, "k": {"type": "keyword"}, "n": {"type": "long"}}}
settings = {"number_of_replicas": 0}
body = {"settings": settings, "mappings": mappings, "aliases": {"shop-alias": {}}}
admin.indices.create(index=INDEX, body=body)
documents = ({"_index": INDEX, "_id": str(i), "t": f"item {i}", "k": "a", "n": i} for i in range(50))
helpers.bulk(admin, documents, refresh=True)

client = connect(token)
query = {"query": {"match": {"t": "item"}}}
script = {"script": {"source": "ctx._source.n = 1", "lang": "painless"}}
template = {"index_patterns": ["shop-t*"], "template": {"settings": settings}}
pattern = {"query": {"bool": {"filter": [{"range": {"n": {"gte": 40}}}]}}, "sort": [{"n": "desc"}]}


def scroll():
    found = client.search(index=INDEX, body=query, scroll="1m", size=10)
    page = client.scroll(scroll_id=found["_scroll_id"], scroll="1m")
    assert len(page["hits"]["hits"]) == 10
    return page["_scroll_id"]


def point_in_time():
    return client.create_pit(index=INDEX, keep_alive="1m")["pit_id"]


def search():
    found = client.search(index=INDEX, body={**pattern, "aggs": {"k": {"terms": {"field": "k"}}}})
    assert found["hits"]["total"]["value"] == 10, found
    assert found["aggregations"]["k"]["buckets"][0]["doc_count"] == 10, found


def search_point():
    found = client.search(body={**pattern, "pit": {"id": point_in_time(), "keep_alive": "1m"}})
    assert found["hits"]["total"]["value"] == 10, found
    assert client.delete_pit(body={"pit_id": [found["pit_id"]]})["pits"][0]["successful"]


def msearch():
    found = client.msearch(body=[{"index": INDEX}, query, {"index": "shop-alias"}, {"size": 1}])
    assert [one["status"] for one in found["responses"]] == [200, 200], found


def scan():
    assert len(list(helpers.scan(client, index=INDEX, query=query, size=20))) >= 50


def bulk():
    actions = [
        {"_op_type": "index", "_index": INDEX, "_id": "b1", "t": "bulk"},
        {"_op_type": "update", "_index": INDEX, "_id": "b1", "doc": {"t": "more"}},
        {"_op_type": "delete", "_index": INDEX, "_id": "b1"},
    ]
    assert helpers.bulk(client, actions) == (3, [])


def parallel():
    actions = [{"_op_type": "create", "_index": INDEX, "t": "bulk"} for _ in range(20)]
    assert all(ok for ok, _ in helpers.parallel_bulk(client, actions, chunk_size=5))


def save():
    index = Index("shop-model", using=client)
    index.analyzer(analyzer("shop", tokenizer="standard", filter=["lowercase"]))
    index.save()
    index.save()


actions = {"actions": [{"add": {"index": INDEX, "alias": "shop-more"}}]}
calls = {
    "info": lambda: client.info(),
    "ping": lambda: client.ping(),
    "cluster.health": lambda: client.cluster.health(),
    "cat.health": lambda: client.cat.health(),
    "cat.indices": lambda: client.cat.indices(),
    "indices.get_alias": lambda: client.indices.get_alias(),
    "indices.resolve_index": lambda: client.indices.resolve_index(name="*"),
    "indices.get_data_stream without a name": lambda: client.indices.get_data_stream(),
    "search": search,
    "search by a point in time": search_point,
    "scroll": scroll,
    "clear_scroll": lambda: client.clear_scroll(scroll_id=scroll()),
    "helpers.scan": scan,
    "msearch": msearch,
    "count": lambda: client.count(index=INDEX, body=query),
    "get": lambda: client.get(index=INDEX, id="1"),
    "exists": lambda: client.exists(index=INDEX, id="1") or refuse(),
    "get_source": lambda: client.get_source(index=INDEX, id="1"),
    "mget": lambda: client.mget(index=INDEX, body={"ids": ["1", "2"]}),
    "termvectors": lambda: client.termvectors(index=INDEX, id="1", fields="t"),
    "mtermvectors": lambda: client.mtermvectors(index=INDEX, body={"ids": ["1"]}),
    "explain": lambda: client.explain(index=INDEX, id="1", body=query),
    "field_caps": lambda: client.field_caps(index=INDEX, fields="*"),
    "cluster.state of metadata": lambda: client.cluster.state(metric="metadata", index=INDEX),
    "cat.count": lambda: client.cat.count(index=INDEX),
    "indices.get": lambda: client.indices.get(index=INDEX),
    "indices.exists": lambda: client.indices.exists(index=INDEX) or refuse(),
    "indices.get_mapping": lambda: client.indices.get_mapping(index=INDEX),
    "indices.get_field_mapping": lambda: client.indices.get_field_mapping(index=INDEX, fields="t"),
    "indices.get_settings": lambda: client.indices.get_settings(index=INDEX),
    "indices.stats": lambda: client.indices.stats(index=INDEX),
    "indices.validate_query": lambda: client.indices.validate_query(index=INDEX, body=query),
    "indices.analyze": lambda: client.indices.analyze(index=INDEX, body={"text": "some text"}),
    "index": lambda: client.index(index=INDEX, id="i1", body={"t": "new"}),
    "create": lambda: client.create(index=INDEX, id=f"c-{token[-8:]}", body={"t": "new"}),
    "update": lambda: client.update(index=INDEX, id="1", body={"doc": {"t": "item one"}}),
    "delete": lambda: client.delete(index=INDEX, id="2"),
    "helpers.bulk": bulk,
    "helpers.parallel_bulk": parallel,
    "delete_by_query": lambda: client.delete_by_query(index=INDEX, body={"query": {"term": {"n": 3}}}),
    "update_by_query": lambda: client.update_by_query(index=INDEX, body={"query": {"term": {"n": 4}}}),
    "indices.refresh": lambda: client.indices.refresh(index=INDEX),
    "update with a script": lambda: client.update(index=INDEX, id="5", body=script),
    "search with a script": lambda: client.search(
        index=INDEX, body={"script_fields": {"x": {"script": "1"}}}
    ),
    "indices.create": lambda: client.indices.create(index="shop-new", body={"settings": settings}),
    "index into a new index": lambda: client.index(index="shop-made", body={"t": "new"}),
    "Index.save": save,
    "indices.put_mapping": lambda: client.indices.put_mapping(
        index=INDEX, body={"properties": {"x": {"type": "keyword"}}}
    ),
    "indices.put_settings": lambda: client.indices.put_settings(
        index=INDEX, body={"index": {"refresh_interval": "2s"}}
    ),
    "indices.put_alias": lambda: client.indices.put_alias(index=INDEX, name="shop-other"),
    "indices.delete_alias": lambda: client.indices.delete_alias(index=INDEX, name="shop-other"),
    "indices.update_aliases": lambda: client.indices.update_aliases(body=actions),
    "indices.close": lambda: client.indices.close(index="shop-new"),
    "indices.open": lambda: client.indices.open(index="shop-new"),
    "indices.flush": lambda: client.indices.flush(index=INDEX),
    "indices.clear_cache": lambda: client.indices.clear_cache(index=INDEX),
    "indices.forcemerge": lambda: client.indices.forcemerge(index=INDEX),
    "indices.delete": lambda: client.indices.delete(index="shop-new,shop-made"),
    "indices.put_index_template": lambda: client.indices.put_index_template(
        name="shop-template", body=template
    ),
    "indices.get_index_template": lambda: client.indices.get_index_template(name="shop-template"),
    "indices.delete_index_template": lambda: client.indices.delete_index_template(
        name="shop-template"
    ),
    "put_script": lambda: client.put_script(
        id="shop-script", body={"script": {"lang": "painless", "source": "1"}}
    ),
    "get_script": lambda: client.get_script(id="shop-script"),
    "delete_script": lambda: client.delete_script(id="shop-script"),
    "ingest.put_pipeline": lambda: client.ingest.put_pipeline(
        id="shop-pipeline", body={"processors": []}
    ),
    "index with a pipeline": lambda: client.index(
        index=INDEX, body={"t": "x"}, pipeline="shop-pipeline"
    ),
    "ingest.delete_pipeline": lambda: client.ingest.delete_pipeline(id="shop-pipeline"),
    "reindex": lambda: client.reindex(
        body={"source": {"index": INDEX}, "dest": {"index": "shop-copy"}}
    ),
    "search_template": lambda: client.search_template(index=INDEX, body={"source": "{}"}),
    "cluster.state": lambda: client.cluster.state(),
    "nodes.info": lambda: client.nodes.info(),
    "tasks.list": lambda: client.tasks.list(),
    "snapshot.get_repository": lambda: client.snapshot.get_repository(),
    "indices.rollover": lambda: client.indices.rollover(alias="shop-alias"),
    "indices.clone": lambda: client.indices.clone(index=INDEX, target="shop-copy"),
}


class Refused(Exception):
    pass


def refuse():
    """HEAD has no error in its response."""
    raise Refused


def outcome(call):
    try:
        call()
        return "allowed"
    except Refused:
        return "refused"
    except TransportError as error:
        code = error.info.get("code") if isinstance(error.info, dict) else None
        if error.status_code == 403 or code in ("not_found", "method_not_allowed"):
            return "refused"
        raise


def named(name, call):
    try:
        return outcome(call)
    except Exception as error:
        return f"failed: {error!r}"


version = client.info()["version"]["number"]
print(json.dumps({"version": version, "calls": {name: named(name, call) for name, call in calls.items()}}))
