import sys,os,time,cloudpickle; sys.path.insert(0,'/work/main')
from moregpu.worker.functions.child import *
from moregpu.worker.functions.child import Child,_flush
from moregpu.worker.functions.journal import *
from moregpu.worker.functions.programs import load
from moregpu.worker.functions.frames import *
import socket
j=JournalReader(); a,b=socket.socketpair(); p,q=socket.socketpair()
c=Child(a,p,Journal(j.fd))
c._programs["x"]=load("pickle",memoryview(cloudpickle.dumps((lambda x:x,{}))))
from moregpu.encoding import encode,joined
args=[joined(encode(((n,),{}))) for n in range(5000)]
raw=b"".join(args)
o=Call(number=1,digest="x",seed=0,calls=[len(x) for x in args],where=Span(start=0,size_bytes=len(raw)))
for _ in range(3):
    t=time.process_time(); c._call(o,memoryview(raw)); print("us/call",(time.process_time()-t)/5000*1e6)
import cProfile,pstats
pr=cProfile.Profile(); pr.enable(); c._call(o,memoryview(raw)); pr.disable(); pstats.Stats(pr).sort_stats("tottime").print_stats(12)
