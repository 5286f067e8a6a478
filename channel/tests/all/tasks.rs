//! Tests of futures without a specific runtime, and of dropping them.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use warpline_channel::{AsyncChannel, AsyncListener, Result};

use crate::pair::{TIGHT, message, open, pair};

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs futures to their ends on this thread.
fn run(mut futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    let _guard = warpline_patience::Guard::new("futures to end");
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    while !futures.is_empty() {
        futures.retain_mut(|future| future.as_mut().poll(&mut context).is_pending());
        if !futures.is_empty() {
            std::thread::park();
        }
    }
}

async fn echo(listener: &AsyncListener) -> Result<()> {
    let channel = listener.accept().await?;
    while let Some(message) = channel.recv().await? {
        channel.send(&message).await?;
    }
    channel.close().await
}

async fn ask(ia: &itapi::Ia, listener: &AsyncListener, len: usize) -> Result<()> {
    let channel = AsyncChannel::connect_with(ia, listener.address(), TIGHT).await?;
    for n in 0..20 {
        channel.send(message(n, len)).await?;
        assert!(channel.recv().await?.unwrap()[..] == message(n, len));
    }
    channel.close().await
}

#[test]
fn many_tasks_of_one_thread_exchange_messages() {
    let ia = open();
    let listener = AsyncListener::bind_with(&ia, "127.0.0.1:0", TIGHT).unwrap();
    let mut futures: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for n in 0..20 {
        let (ia, listener) = (&ia, &listener);
        futures.push(Box::pin(async move { echo(listener).await.unwrap() }));
        let len = if n % 2 == 0 { 30 } else { 3000 };
        futures.push(Box::pin(async move { ask(ia, listener, len).await.unwrap() }));
    }
    run(futures);
}

#[test]
fn a_dropped_future_loses_no_message() {
    let (client, server) = pair(TIGHT);
    let (client, server) = (client.into_async().unwrap(), server.into_async().unwrap());
    {
        let mut context = Context::from_waker(Waker::noop());
        let waits = pin!(server.recv());
        assert!(matches!(waits.poll(&mut context), Poll::Pending));
    }
    run(vec![
        Box::pin(async move {
            client.send(b"still here").await.unwrap();
            client.close().await.unwrap();
        }),
        Box::pin(async move {
            assert_eq!(server.recv().await.unwrap().as_deref(), Some(&b"still here"[..]));
            assert!(server.recv().await.unwrap().is_none());
            server.close().await.unwrap();
        }),
    ]);
}

#[test]
fn a_task_is_notified_that_the_peer_has_ended() {
    let (client, server) = pair(TIGHT);
    let server = server.into_async().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(client));
        run(vec![Box::pin(async move {
            let error = server.recv().await.unwrap_err();
            assert!(error.to_string().contains("127.0.0.1"), "{error}");
        })]);
    });
}

#[test]
fn a_stream_of_tokio_is_read_to_its_end() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let (client, server) = pair(TIGHT);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sent = message(4, 200_000);
    runtime.block_on(async {
        let writer = async {
            let mut stream = client.into_async().unwrap().into_stream();
            stream.write_all(&sent).await.unwrap();
            stream.shutdown().await.unwrap();
            stream.into_channel().close().await.unwrap();
        };
        let reader = async {
            let (mut stream, mut got) = (server.into_async().unwrap().into_stream(), Vec::new());
            stream.read_to_end(&mut got).await.unwrap();
            assert!(got == sent);
            stream.into_channel().close().await.unwrap();
        };
        tokio::join!(writer, reader);
    });
}

#[test]
fn a_stream_of_the_futures_crates_is_read_to_its_end() {
    use futures_io::{AsyncRead, AsyncWrite};
    use std::future::poll_fn;

    let (client, server) = pair(TIGHT);
    let sent = message(4, 200_000);
    let writer = async {
        let mut stream = client.into_async().unwrap().into_stream();
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let taken = poll_fn(|context| Pin::new(&mut stream).poll_write(context, rest)).await;
            rest = &rest[taken.unwrap()..];
        }
        poll_fn(|context| Pin::new(&mut stream).poll_flush(context)).await.unwrap();
        poll_fn(|context| Pin::new(&mut stream).poll_close(context)).await.unwrap();
        stream.into_channel().close().await.unwrap();
    };
    let reader = async {
        let mut stream = server.into_async().unwrap().into_stream();
        let (mut got, mut some) = (Vec::new(), [0; 999]);
        loop {
            let read = poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut some)).await;
            match read.unwrap() {
                0 => break,
                octets => got.extend_from_slice(&some[..octets]),
            }
        }
        assert!(got == sent);
        stream.into_channel().close().await.unwrap();
    };
    run(vec![Box::pin(writer), Box::pin(reader)]);
}
