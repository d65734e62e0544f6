//! The scenarios with rskafka, which has producers, partition readers and topic creation, but no consumer groups, no
//! choice of acks and no topic configs. Prints one line a scenario: `CASE name PASS|FAIL seconds detail`.

use chrono::{TimeZone, Utc};
use rskafka::client::error::{Error as ClientError, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const PARTITIONS: i32 = 3;
const CODECS: [(&str, Compression); 5] = [
    ("none", Compression::NoCompression),
    ("gzip", Compression::Gzip),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
];

/// Ten records for one partition; the eighth has a null value, the fifth a null key.
fn records(tag: &str, partition: i32) -> Vec<Record> {
    (0..10u8)
        .map(|i| Record {
            key: (i != 4).then(|| format!("{tag}-{partition}-{i}").into_bytes()),
            value: (i != 7).then(|| format!("{tag}:{i}:{}", "abcdefgh".repeat(40)).into_bytes()),
            headers: BTreeMap::from([
                ("tag".to_owned(), tag.as_bytes().to_vec()),
                ("bin".to_owned(), vec![0, 255, 128, i]),
            ]),
            timestamp: Utc
                .timestamp_millis_opt(1_700_000_000_000 + i64::from(i))
                .unwrap(),
        })
        .collect()
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(what().into())
    }
}

struct Suite {
    client: Client,
    prefix: String,
}

impl Suite {
    fn topic(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    async fn partition(&self, topic: &str, partition: i32) -> Result<PartitionClient, ClientError> {
        // A topic created just now may not have a leader yet, which Retry waits for.
        self.client
            .partition_client(self.topic(topic), partition, UnknownTopicHandling::Retry)
            .await
    }

    async fn create(&self) -> Outcome {
        let controller = self.client.controller_client()?;
        for (codec, _) in CODECS {
            controller
                .create_topic(self.topic(codec), PARTITIONS, 1, 5_000)
                .await?;
        }
        let topics = self.client.list_topics().await?;
        let created = topics
            .iter()
            .find(|t| t.name == self.topic("none"))
            .ok_or("the topic is not listed")?;
        check(created.partitions.len() == PARTITIONS as usize, || {
            format!("partitions {:?}", created.partitions)
        })
    }

    async fn produce(&self, codec: &str, compression: Compression) -> Outcome {
        for p in 0..PARTITIONS {
            let offsets = self
                .partition(codec, p)
                .await?
                .produce(records(codec, p), compression)
                .await?;
            check(offsets == (0..10).collect::<Vec<i64>>(), || {
                format!("acknowledged at {offsets:?}")
            })?;
        }
        Ok(())
    }

    async fn consume_start(&self) -> Outcome {
        for (codec, _) in CODECS {
            for p in 0..PARTITIONS {
                let partition = self.partition(codec, p).await?;
                let start = partition.get_offset(OffsetAt::Earliest).await?;
                check(start == 0, || format!("{codec}-{p} starts at {start}"))?;
                let got = read(&partition, start, 10).await?;
                for (i, (got, want)) in got.iter().zip(records(codec, p)).enumerate() {
                    check(got.offset == i as i64, || {
                        format!("{codec}-{p}: offset {} at {i}", got.offset)
                    })?;
                    check(got.record == want, || {
                        format!("{codec}-{p} offset {i}: got {:.300?}", got.record)
                    })?;
                }
            }
        }
        Ok(())
    }

    async fn consume_end(&self) -> Outcome {
        let partition = self.partition("none", 0).await?;
        let end = partition.get_offset(OffsetAt::Latest).await?;
        check(end == 10, || format!("the end is {end}, want 10"))?;
        let late = records("late", 0);
        // The reader waits at the end while the producer sends.
        let (got, sent) = tokio::join!(read(&partition, end, 10), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.partition("none", 0)
                .await?
                .produce(late.clone(), Compression::NoCompression)
                .await
        });
        sent?;
        for (i, (got, want)) in got?.iter().zip(late).enumerate() {
            check(got.offset == end + i as i64 && got.record == want, || {
                format!("got {:.300?}", got)
            })?;
        }
        Ok(())
    }

    async fn unknown_topic(&self) -> Outcome {
        // Its metadata requests always allow auto-creation; this call cannot create anything.
        let asked = self
            .client
            .controller_client()?
            .delete_topic(self.topic("nowhere"), 5_000)
            .await;
        refused(asked, ProtocolError::UnknownTopicOrPartition)
    }

    async fn too_large(&self) -> Outcome {
        let partition = self.partition("small", 0).await?;
        let mut noise = 1u32;
        let value: Vec<u8> = (0..4000)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect();
        let big = Record {
            key: None,
            value: Some(value),
            headers: BTreeMap::new(),
            timestamp: Utc::now(),
        };
        let asked = partition
            .produce(vec![big], Compression::NoCompression)
            .await
            .map(|_| ());
        refused(asked, ProtocolError::MessageTooLarge)?;
        let fits = records("fits", 0).into_iter().take(1).collect();
        let sent = partition.produce(fits, Compression::NoCompression).await?;
        check(sent == [0], || format!("what fits is at {sent:?}, want 0"))
    }

    async fn out_of_range(&self) -> Outcome {
        let partition = self.partition("none", 0).await?;
        let asked = partition
            .fetch_records(1_000_000, 1..1_000_000, 1_000)
            .await
            .map(|_| ());
        refused(asked, ProtocolError::OffsetOutOfRange)
    }
}

/// The answer must be this error of the broker.
fn refused(answer: Result<(), ClientError>, wanted: ProtocolError) -> Outcome {
    match answer {
        Ok(()) => Err(format!("no error, want {wanted:?}").into()),
        Err(ClientError::ServerError { protocol_error, .. }) if protocol_error == wanted => Ok(()),
        Err(other) => Err(format!("want {wanted:?}, got {other:?}").into()),
    }
}

async fn read(
    partition: &PartitionClient,
    from: i64,
    n: usize,
) -> Result<Vec<RecordAndOffset>, ClientError> {
    let mut got: Vec<RecordAndOffset> = Vec::new();
    while got.len() < n {
        let next = from + got.len() as i64;
        got.extend(partition.fetch_records(next, 1..1_000_000, 1_000).await?.0);
    }
    Ok(got)
}

async fn scenario(name: &str, body: impl Future<Output = Outcome>) {
    let start = Instant::now();
    let outcome = match tokio::time::timeout(Duration::from_secs(30), body).await {
        Ok(outcome) => outcome,
        Err(_) => Err("not done after 30 s".into()),
    };
    let seconds = start.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => println!("CASE {name} PASS {seconds:.1}"),
        Err(e) => println!(
            "CASE {name} FAIL {seconds:.1} {}",
            e.to_string().replace('\n', " ")
        ),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let client = ClientBuilder::new(vec![std::env::var("BOOTSTRAP")?])
        .build()
        .await?;
    let suite = Suite {
        client,
        prefix: std::env::var("PREFIX")?,
    };
    scenario("create", suite.create()).await;
    for (codec, compression) in CODECS {
        scenario(
            &format!("produce-{codec}"),
            suite.produce(codec, compression),
        )
        .await;
    }
    scenario("consume-start", suite.consume_start()).await;
    scenario("consume-end", suite.consume_end()).await;
    scenario("error-unknown-topic", suite.unknown_topic()).await;
    scenario("error-too-large", suite.too_large()).await;
    scenario("error-out-of-range", suite.out_of_range()).await;
    Ok(())
}
